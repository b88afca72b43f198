"""Section of answers: averages over subsets, scores by facts of the items, and items that changed, side by side."""

from collections.abc import Sequence

from seamark.analysis.trial_view import TrialView
from seamark.model.results.comparison import Comparisons, SubsetAverage
from seamark.report.answers_of import SideBySide, side_by_side
from seamark.report.compared_answers import score_text
from seamark.report.numbers import level
from seamark.report.page.answer_costs import answer_cost_blocks
from seamark.report.page.content import Block, Section, Table, Text, column, figures
from seamark.report.source import Results

MOST_CHANGED, MOST_CHARACTERS, MOST_FACT_TABLES = 20, 200, 12


def answers_section(results: Results) -> Section | None:
    """Return what answers cost and where they go wrong; None without scored answers."""
    found = results.summary.comparisons
    costs = answer_cost_blocks(results)
    if found is None:
        return Section(id="answers", title="Answers", blocks=tuple(costs)) if costs else None

    def trials(treatment: str) -> Sequence[TrialView]:
        return results.by_treatment.get(treatment, ())

    pairs = list(side_by_side(found, trials, trials))
    blocks = [*_averages(found), *costs, *_facts(found, pairs), *_changed(pairs)]
    return Section(id="answers", title="Answers", blocks=tuple(blocks)) if blocks else None


def _averages(found: Comparisons) -> list[Block]:
    groups: dict[tuple[str, str], list[SubsetAverage]] = {}
    for each in found.averages:
        groups.setdefault((each.workload, each.factor), []).append(each)
    return [_average_table(own) for own in groups.values()]


def _average_table(own: Sequence[SubsetAverage]) -> Table:
    names = list(own[0].fixed)
    why = [f"no scores of {', '.join(each.missing)}" for each in own if each.missing]
    columns = (
        *(column(name, [level(each.fixed[name], name) for each in own]) for name in names),
        figures("macro average", [None if each.macro is None else score_text(each.macro) for each in own]),
        figures("micro average", [None if each.micro is None else score_text(each.micro) for each in own]),
        figures("subsets", [f"{each.subsets - len(each.missing)} of {each.subsets}" for each in own]),
        figures("items", [f"{each.items:,}" for each in own]),
    )
    notes = ["Macro: each subset counts alike. Micro: each item counts alike. None where a subset is missing."]
    return Table(
        columns=columns,
        caption=f"{own[0].workload}: {own[0].quality} over {own[0].factor}",
        footnotes=(*notes, *dict.fromkeys(why)),
    )


def _facts(found: Comparisons, pairs: Sequence[SideBySide]) -> list[Block]:
    from seamark.analysis.changed_answers import scores_by_fact

    groups: dict[tuple[str, str | None, str | None, str], list[SideBySide]] = {}
    for each in pairs:
        one = each.compared
        groups.setdefault((one.workload, one.factor, one.base.treatment, one.metric), []).append(each)
    blocks: list[Block] = []
    for own in list(groups.values())[:MOST_FACT_TABLES]:
        first = own[0].compared
        name = first.factor or ""
        levels = {level(first.base.level, name): own[0].base}
        levels |= {level(each.compared.new.level, name): each.new for each in own}
        rows = scores_by_fact(levels, first.metric)
        if not rows:
            continue
        fixed = ", ".join(f"{key} {level(value, key)}" for key, value in first.fixed.items())
        columns = (
            column("fact", [row.fact for row in rows], "code"),
            column("value", [row.value for row in rows]),
            figures("items", [str(row.items) for row in rows]),
            *(
                figures(text, [None if (mean := row.means[text]) is None else score_text(mean) for row in rows])
                for text in levels
            ),
        )
        title = f"{first.workload}: {first.metric} by facts of the items, by {name}{f' ({fixed})' if fixed else ''}"
        blocks.append(Table(columns=columns, caption=title, footnotes=("Of one trial each.",)))
    return blocks


def _changed(pairs: Sequence[SideBySide]) -> list[Block]:
    from seamark.analysis.changed_answers import changed_answers

    every = [(each, changed_answers(each.base, each.new, each.compared.metric)) for each in pairs]
    every = [(each, items) for each, items in every if items]
    total = sum(len(items) for _, items in every)
    if not total:
        return []
    share = max(1, MOST_CHANGED // len(every))
    shown = [(each.text, item) for each, items in every for item in items[:share]][:MOST_CHANGED]
    columns = (
        column("comparison", [text for text, _ in shown]),
        column("item", [item.id for _, item in shown], "code"),
        figures("baseline", [score_text(item.base_score) for _, item in shown]),
        figures("new", [score_text(item.new_score) for _, item in shown]),
        column("answer of the baseline", [_short(item.base_answer) for _, item in shown]),
        column("new answer", [_short(item.new_answer) for _, item in shown]),
    )
    text = f"{len(shown)} of {total:,} items with another score, the greatest losses first."
    return [
        Text(text=f"{text} `bench compare` with `--changed FILE.csv` writes all of them."),
        Table(columns=columns, caption="Items that changed", footnotes=("Of one trial each.",)),
    ]


def _short(answer: str | None) -> str | None:
    if answer is None or len(answer) <= MOST_CHARACTERS:
        return answer
    return answer[:MOST_CHARACTERS] + "…"
