"""Tables of scored answers beside their scores: device-hours for a percent of quality, pass@k, published figures."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import comb, hypot
from statistics import fmean

from seamark.analysis.comparison.observations import whole_answers
from seamark.model.plurals import counted
from seamark.model.results.answers import AnswersRecord, Score
from seamark.model.service import Value
from seamark.model.trial import levels_of
from seamark.report.compared_answers import score_text
from seamark.report.numbers import ABSENT, level, span
from seamark.report.page.content import Block, Table, column, figures
from seamark.report.source import Results
from seamark.stats.paired import mean_limits

TASK, SCORE = "task", "score"
MOST_K = 64


Spent = tuple[float, AnswersRecord]
"""Time of a trial's load on its devices in s, and its answers, which are whole."""


@dataclass(frozen=True, kw_only=True)
class _Group:
    """Treatments that differ by their task alone, in each block of trials; None for a trial without whole answers."""

    blocks: dict[int, list[Spent | None]] = field(default_factory=dict)

    @property
    def whole(self) -> list[list[Spent]]:
        """The blocks with whole answers to all tasks."""
        return [
            known for block in self.blocks.values() if len(known := [spent for spent in block if spent]) == len(block)
        ]

    @property
    def scores(self) -> list[Score]:
        """The score of each trial in whole blocks."""
        return [score for block in self.whole for score, _ in _scored(block)]

    @property
    def percent(self) -> float:
        """The mean score of all questions."""
        total = sum((score.mean or 0) * score.scored for score in self.scores)
        return 100 * total / sum(score.scored for score in self.scores)

    @property
    def limits(self) -> str:
        """The interval of the mean score in percent. Repetitions ask the same questions, and narrow nothing."""
        errors, units = [], []
        for block in self.whole:
            scored = _scored(block)
            if any(score.standard_error is None for score, _ in scored):
                return ABSENT
            parts = [score.scored * (score.standard_error or 0) for score, _ in scored]
            errors.append(hypot(*parts) / sum(score.scored for score, _ in scored))
            units.append(sum(count for _, count in scored))
        interval = mean_limits(self.percent / 100, fmean(errors), min(units))
        return span(100 * interval.low, 100 * interval.high)

    @property
    def hours(self) -> float:
        """Time on devices for one block, the mean of the whole ones."""
        return sum(device_s for block in self.whole for device_s, _ in block) / 3600 / len(self.whole)


def _scored(block: Iterable[Spent]) -> list[tuple[Score, int]]:
    """Return the scores that have a mean, with their numbers of clusters."""
    scores = ((record.scores[SCORE], record.clusters) for _, record in block)
    return [(score, clusters or score.scored) for score, clusters in scores if score.mean is not None]


def answer_cost_blocks(results: Results) -> list[Block]:
    """Return the tables that a scenario's answers have, of trials that answered every item; none without any."""
    records = {
        trial.id: record
        for trial in results.trials
        if trial.ok and (record := whole_answers(trial)) is not None and SCORE in record.scores
    }
    if not records:
        return []
    return [*_device_hours(results, records), *_pass_at_k(results, records), *_published(results, records)]


def _device_hours(results: Results, records: Mapping[str, AnswersRecord]) -> list[Block]:
    levels = levels_of(results.plan)
    gpus = {
        deployment.id: max(1, deployment.gpus) for deployment in (*results.plan.deployments, *results.plan.served)
    }
    groups: dict[tuple[str, tuple[tuple[str, Value], ...]], _Group] = {}
    named = {trial.treatment: trial.group for trial in results.plan.measured if trial.settings.get(TASK)}
    for view in results.trials:
        if view.treatment not in named:
            continue
        varied = levels.get(view.treatment, {})
        key = named[view.treatment], tuple((name, value) for name, value in varied.items() if name != TASK)
        record, devices = records.get(view.id), gpus.get(view.trial.deployment, 1)
        of_block = groups.setdefault(key, _Group()).blocks.setdefault(view.trial.block, [])
        of_block.append(None if record is None or view.load_s is None else (view.load_s * devices, record))
    whole = {key: group for key, group in groups.items() if group.scores}
    if not whole:
        return []
    names = list(dict.fromkeys(name for _, factors in whole for name, _ in factors))
    several = len({workload for workload, _ in whole}) > 1
    hours = [group.hours for group in whole.values()]
    percents = [group.percent for group in whole.values()]
    prices = [hour / percent if percent else None for hour, percent in zip(hours, percents, strict=True)]
    columns = (
        *((column("workload", [workload for workload, _ in whole]),) if several else ()),
        *(column(name, [_shown(dict(factors).get(name), name) for _, factors in whole]) for name in names),
        figures("score", percents, "%"),
        figures("95 % interval", [group.limits for group in whole.values()], "%"),
        figures("device-hours", hours),
        figures("device-hours for a percent", prices, why="no score"),
    )
    others = len(groups) - len(whole)
    left_out = [f"{others} more lack scores of a task, or answers to some of its questions."] if others else []
    if lacking := sum(len(group.blocks) - len(group.whole) for group in whole.values()):
        left_out.append(f"{counted(lacking, 'repetition')} left out: without whole answers to all tasks.")
    note = (
        "Loads of one repetition of all tasks, without starts of servers; a device that lanes share counts for each."
        " The score is the mean of all questions; its interval is that of other questions like these, by clusters."
    )
    return [Table(columns=columns, caption="Device-hours for quality", footnotes=(note, *left_out))]


def _pass_at_k(results: Results, records: Mapping[str, AnswersRecord]) -> list[Block]:
    """Return pass@k of treatments whose repetitions drew several samples of each question, right or wrong."""
    from seamark.analysis.answers import read_scored  # imports pyarrow

    drawn = {
        trial.treatment
        for trial in results.plan.measured
        if float(trial.settings.get("temperature") or 0) > 0 and trial.settings.get(TASK)
    }
    rows: list[tuple[str, int, Mapping[int, float]]] = []
    for treatment, trials in results.by_treatment.items():
        answered = [trial for trial in trials if trial.id in records]
        if treatment not in drawn or len(answered) < 2:
            continue
        values: dict[str, list[float]] = {}
        for trial in answered:
            scores = read_scored(trial.folder.answers) or {}
            for (item, _), value in scores.get(SCORE, {}).items():
                values.setdefault(item, []).append(value)
        samples = min(map(len, values.values()), default=0)
        if samples < 2 or any(value not in (0, 1) for scores in values.values() for value in scores):
            continue
        estimates = {
            k: fmean(pass_at_k(len(scores), round(sum(scores)), k) for scores in values.values())
            for k in range(1, min(samples, MOST_K) + 1)
            if k == samples or k & (k - 1) == 0  # 1, 2, 4, ... and all of them
        }
        rows.append((treatment, samples, estimates))
    if not rows:
        return []
    every = sorted({k for _, _, by_k in rows for k in by_k})
    columns = (
        column("treatment", [treatment for treatment, _, _ in rows], "code"),
        figures("samples", [str(samples) for _, samples, _ in rows]),
        *(
            figures(f"pass@{k}", [by_k.get(k) for _, _, by_k in rows], why="fewer samples", shown=score_text)
            for k in every
        ),
    )
    note = "Repetitions are samples. Unbiased over all of them: 1 - C(n - c, k) / C(n, k), mean over the questions."
    return [Table(columns=columns, caption="pass@k", footnotes=(note,))]


def _published(results: Results, records: Mapping[str, AnswersRecord]) -> list[Block]:
    rows = [
        (trial, name, value)
        for trial in results.trials
        if trial.id in records
        for name, value in records[trial.id].published.items()
    ]
    if not rows:
        return []
    repeated = Counter(trial.treatment for trial, _, _ in rows)
    columns = (
        column("treatment", [t.id if repeated[t.treatment] > 1 else t.treatment for t, _, _ in rows], "code"),
        column("figure", [name for _, name, _ in rows]),
        figures("value", [value for _, _, value in rows], shown=score_text),
    )
    note = "As the benchmark's own program sums a task up; published tables show them times 100."
    return [Table(columns=columns, caption="Figures as published", footnotes=(note,))]


def _shown(value: Value, name: str) -> str | None:
    return None if value is None else level(value, name)


def pass_at_k(samples: int, right: int, k: int) -> float:
    """Return the probability that at least one of k of the samples is right: 1 - C(n - c, k) / C(n, k).

    Unbiased for k up to the number of samples. https://arxiv.org/abs/2107.03374, equation 1. Raises ValueError for
    other numbers.
    """
    if not 0 <= right <= samples or not 1 <= k <= samples:
        raise ValueError(f"pass@{k} of {samples} samples with {right} right is not defined.")
    return 1 - comb(samples - right, k) / comb(samples, k)
