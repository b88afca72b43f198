"""One trial as a comparison sees it: its figures, its scored answers, its start of the server, and what speaks
against it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from seamark.analysis.comparison.scored import Scores, TrialAnswers
from seamark.analysis.trial_view import TrialView
from seamark.model.origin import MEASURED, HasOrigin, Origin
from seamark.model.results.answers import AnswersRecord
from seamark.model.results.trial_metrics import ObjectiveResult, OwnMetric, Verdict
from seamark.model.trial import Trial
from seamark.stats.range import Range

NOT_OF_METHOD = "speed_not_of_method"
"""Code of a reason, or a quality other than 0, of a trial whose times are not those of its method."""
VIRTUAL = "a virtual clock"
"""The start of every simulated trial: nothing of a machine is in its figures."""


@dataclass(frozen=True, kw_only=True)
class Observation(HasOrigin):
    """One trial. `figures` are by path (`latency_ms.p99`, `quality.NAME`, `own.NAME`, `search.found`); none of a
    trial without figures. `start` names the start of the server; trials of one start share its time and its place.
    `span_s` is when the trial began and ended, in seconds since 1970; None: not known, or on a virtual clock.
    `answers` are those whose replies were scored. Without `speed_of_method` its times are not those of its method,
    such as of masks over dense attention. `suspect` has the codes for which it is SUSPECT. `exact`: nothing in it was
    drawn, every repetition is the same."""

    trial: str
    treatment: str
    block: int
    start: str
    verdict: Verdict
    origin: Origin = MEASURED
    unit: str = ""
    figures: Mapping[str, Range] = field(default_factory=dict)
    own: Mapping[str, OwnMetric] = field(default_factory=dict)
    slos: tuple[ObjectiveResult, ...] = ()
    span_s: tuple[float, float] | None = None
    answers: TrialAnswers | None = field(default=None, compare=False, repr=False)
    speed_of_method: bool = True
    suspect: tuple[str, ...] = ()
    exact: bool = False

    @property
    def counts(self) -> bool:
        """Whether the trial takes part: VALID or SUSPECT, with figures."""
        return bool(self.figures) and self.verdict != "INVALID"

    def figure(self, path: str) -> Range | None:
        """Return both ends of the figure at a path; None where nothing is known of it, or it is withheld."""
        return self.figures.get(path)


def observation(view: TrialView, paths: Collection[str], source: str = "") -> Observation:
    """Return what a comparison needs of a trial: the figures at `paths`, its qualities and its own metrics.

    Without a recorded start all trials of a deployment count as one start. The starts of two results, each named by
    `source`, are never the same.
    """
    trial, metrics, load = view.trial, view.good, view.load
    start = load.server_start if load is not None and load.server_start else trial.deployment
    virtual = metrics is not None and metrics.virtual_clock
    plain = Observation(
        suspect=tuple(dict.fromkeys(reason.code for reason in view.reasons if reason.verdict == "SUSPECT")),
        trial=trial.id,
        treatment=trial.treatment,
        block=trial.block,
        start=VIRTUAL if virtual else f"{source}: {start}" if source else start,
        verdict=view.verdict,
        origin=MEASURED if metrics is None else metrics.origin,
        span_s=None if virtual or load is None else load.span_s,
    )
    if metrics is None:
        return plain
    # a percentile of few samples is null, and compared by its order-statistic interval where that has two ends
    found_ends = ((path, metrics.range_of(path)) for path in paths)
    figures = {
        path: ends
        for path, ends in found_ends
        if ends and (ends.high is not None or metrics.figure(path) is not None)
    }
    values = {f"quality.{name}": value for name, value in metrics.quality.items()}
    values |= {f"own.{name}": metric.value for name, metric in metrics.own.items()}
    figures |= {path: Range.exact(value) for path, value in values.items() if value is not None}
    if metrics.search is not None and metrics.search.found is not None:
        largest, open_ended = metrics.search.found, metrics.search.bracket[1] is None
        figures["search.found"] = Range(low=largest, high=None if open_ended else largest)
    return replace(
        plain,
        unit=metrics.throughput.unit,
        figures=figures,
        own=metrics.own,
        slos=metrics.slos,
        answers=trial_answers(view),
        speed_of_method=NOT_OF_METHOD not in {reason.code for reason in metrics.reasons}
        and not metrics.quality.get(NOT_OF_METHOD),
        exact=virtual and _draws_nothing(trial),
    )


def _draws_nothing(trial: Trial) -> bool:
    """Return whether a simulated trial has neither drawn times nor drawn requests. A machine from a file may fail at
    drawn times, and a fitted service draws its arrivals whatever `draw` says, so their trials count as drawn."""
    settings = trial.settings
    drawn = (settings.get(name) for name in ("generated_requests", "generated_workflow", "machine", "model_file"))
    return settings.get("draw") is False and all(value is None for value in drawn)


SEED = "seed"


def trial_answers(view: TrialView) -> TrialAnswers | None:
    """Return the scored answers of a trial; None where its replies were not scored."""
    record, path = view.answers, view.folder.answers
    if record is None or record.status != "ok" or not path.exists():
        return None

    def scored() -> Scores | None:  # holds the path alone: a summary keeps the answers of all trials
        from seamark.analysis.answers import read_scored  # imports pyarrow

        return read_scored(path)

    return TrialAnswers(
        scores=tuple(record.scores),
        read=scored,
        unanswered=view.unanswered,
        seeds={
            name: value for name, value in view.trial.settings.items() if name == SEED or name.endswith(f"_{SEED}")
        },
        key=record.key_sha256,
    )


def whole_answers(view: TrialView) -> AnswersRecord | None:
    """Return what answers.json says of a trial whose replies were scored, None where an item has no answer: scores of
    a part of the items are those of another task, in a report as in a comparison."""
    return view.answers if view.answers and view.answers.status == "ok" and not view.unanswered else None
