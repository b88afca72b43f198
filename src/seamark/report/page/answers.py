"""Section of answers: averages over subsets, scores by facts of the items, and items that changed, side by side."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seamark.analysis.comparison.observations import whole_answers
from seamark.analysis.trial_view import TrialView
from seamark.model.results.comparison import Compared, Comparisons, SubsetAverage
from seamark.report.compared_answers import score_text
from seamark.report.comparison import contrast_text
from seamark.report.numbers import level, levels_text, side_name
from seamark.report.page.answer_costs import answer_cost_blocks
from seamark.report.page.content import Block, Section, Table, Text, column, figures
from seamark.report.source import Results

MOST_CHANGED, MOST_CHARACTERS, MOST_FACT_TABLES = 20, 200, 12
Trials = Callable[[str], Sequence[TrialView]]
"""From a treatment to its trials."""


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """A comparison of answers with the rows of one trial of each side, of the same block where there is one."""

    compared: Compared
    text: str
    base: Sequence[Mapping[str, Any]]
    new: Sequence[Mapping[str, Any]]


def answers_section(results: Results) -> Section | None:
    """Return what answers cost and where they go wrong; None without scored answers."""
    comparisons = results.summary.comparisons
    costs = answer_cost_blocks(results)
    if comparisons is None:
        return Section(id="answers", title="Answers", blocks=tuple(costs)) if costs else None

    def trials(treatment: str) -> Sequence[TrialView]:
        return results.by_treatment.get(treatment, ())

    pairs = list(side_by_side(comparisons, trials, trials))
    averages: dict[tuple[str, str], list[SubsetAverage]] = {}
    for average in comparisons.averages:
        averages.setdefault((average.workload, average.factor), []).append(average)
    tables = map(_average_table, averages.values())
    blocks: list[Block] = [*tables, *costs, *_facts(pairs), *_changed(pairs)]
    return Section(id="answers", title="Answers", blocks=tuple(blocks)) if blocks else None


def _average_table(own: Sequence[SubsetAverage]) -> Table:
    names = list(own[0].fixed)
    why = [f"no scores of {', '.join(average.missing)}" for average in own if average.missing]
    columns = (
        *(column(name, [level(average.fixed[name], name) for average in own]) for name in names),
        figures("macro average", [average.macro for average in own], shown=score_text),
        figures("micro average", [average.micro for average in own], shown=score_text),
        figures("subsets", [f"{average.subsets - len(average.missing)} of {average.subsets}" for average in own]),
        figures("items", [f"{average.items:,}" for average in own]),
    )
    note = "Macro: each subset counts alike. Micro: each item counts alike. None where a subset is missing."
    caption = f"{own[0].workload}: {own[0].quality} over {own[0].factor}"
    return Table(columns=columns, caption=caption, footnotes=(note, *dict.fromkeys(why)))


def _facts(pairs: Sequence[SideBySide]) -> list[Block]:
    from seamark.analysis.changed_answers import scores_by_fact

    groups: dict[tuple[str, str | None, str | None, str], list[SideBySide]] = {}
    for pair in pairs:
        key = pair.compared.workload, pair.compared.factor, pair.compared.base.treatment, pair.compared.metric
        groups.setdefault(key, []).append(pair)
    blocks: list[Block] = []
    for group in list(groups.values())[:MOST_FACT_TABLES]:
        first = group[0].compared
        name = first.factor or ""
        levels = {side_name(first.base, name): group[0].base}
        levels |= {side_name(pair.compared.new, name): pair.new for pair in group}
        rows = scores_by_fact(levels, first.metric)
        if not rows:
            continue
        fixed = levels_text(first.fixed)
        columns = (
            column("fact", [row.fact for row in rows], "code"),
            column("value", [row.value for row in rows]),
            figures("items", [str(row.items) for row in rows]),
            *(figures(text, [row.means[text] for row in rows], shown=score_text) for text in levels),
        )
        title = f"{first.workload}: {first.metric} by facts of the items, by {name}{f' ({fixed})' if fixed else ''}"
        blocks.append(Table(columns=columns, caption=title, footnotes=("Of one trial each.",)))
    return blocks


def _changed(pairs: Sequence[SideBySide]) -> list[Block]:
    from seamark.analysis.changed_answers import changed_answers

    every = [(pair, changed_answers(pair.base, pair.new, pair.compared.metric)) for pair in pairs]
    every = [(pair, items) for pair, items in every if items]
    total = sum(len(items) for _, items in every)
    if not total:
        return []
    share = max(1, MOST_CHANGED // len(every))
    shown = [(pair.text, item) for pair, items in every for item in items[:share]][:MOST_CHANGED]
    columns = (
        column("comparison", [text for text, _ in shown]),
        column("item", [item.id for _, item in shown], "code"),
        figures("baseline", [item.base_score for _, item in shown], shown=score_text),
        figures("new", [item.new_score for _, item in shown], shown=score_text),
        column("answer of the baseline", [_short(item.base_answer) for _, item in shown]),
        column("new answer", [_short(item.new_answer) for _, item in shown]),
    )
    text = f"{len(shown)} of {total:,} items with another score, the greatest losses first."
    return [
        Text(text=f"{text} `bench compare` with `--changed FILE.csv` writes all of them."),
        Table(columns=columns, caption="Items that changed", footnotes=("Of one trial each.",)),
    ]


def _short(answer: str | None) -> str | None:
    return answer and answer[:MOST_CHARACTERS] + "…" * (len(answer) > MOST_CHARACTERS)


def side_by_side(found: Comparisons, base_trials: Trials, new_trials: Trials) -> Iterator[SideBySide]:
    """Yield each comparison of answers with the answers themselves; repetitions beyond the first are not read."""
    from seamark.analysis.changed_answers import read_answered  # imports pyarrow

    for compared in found.comparisons:
        if compared.answers is None:
            continue
        base = _scored(base_trials(str(compared.base.treatment)))
        new = _scored(new_trials(str(compared.new.treatment)))
        if not base or not new:
            continue
        shared = sorted(base.keys() & new.keys())
        one, other = (base[shared[0]], new[shared[0]]) if shared else (base[min(base)], new[min(new)])
        yield SideBySide(
            compared=compared,
            text=contrast_text(compared, found),
            base=read_answered(one.folder.answers),
            new=read_answered(other.folder.answers),
        )


def changed_table(found: Comparisons, base_trials: Trials, new_trials: Trials) -> list[dict[str, Any]]:
    """Return a row for each item that a comparison's two trials answered with another score."""
    from seamark.analysis.changed_answers import changed_answers

    rows = []
    for pair in side_by_side(found, base_trials, new_trials):
        for item in changed_answers(pair.base, pair.new, pair.compared.metric):
            about = {name: value for name, value in vars(item).items() if name != "facts"}
            facts = {f"fact_{name}": value for name, value in item.facts.items()}
            rows.append({"comparison": pair.text, "metric": pair.compared.metric, **about, **facts})
    return rows


def _scored(views: Sequence[TrialView]) -> dict[int, TrialView]:
    """Return the trials that a comparison of answers uses, by their block: replies to every item, all scored."""
    return {view.trial.block: view for view in views if view.folder.answers.exists() and whole_answers(view)}
