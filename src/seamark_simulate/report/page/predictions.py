"""Section of predictions: fitted models with what they predicted of held-out trials, simulated beside measured."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from seamark.model.plurals import counted
from seamark.report.numbers import number, percent
from seamark.report.page.content import Block, Code, Table, Text, column, figures, known, named
from seamark.report.source import Results
from seamark.report.tables.summary import slug
from seamark_simulate.report.figures.predicted import figure_words, predicted_picture
from seamark_simulate.report.fitted import model_lines
from seamark_simulate.report.predictions import FitShown, Pair, fits_of, simulated_pairs

MOST_ROWS = 200


def prediction_blocks(results: Results, folder: Path) -> list[Block]:
    """Return predictions and measurements side by side; nothing where a scenario has none."""
    blocks: list[Block] = []
    pairs = simulated_pairs(results)
    if pairs:
        blocks += [
            Text(text="Simulated treatments beside the measured ones with equal settings; medians of repetitions."),
            predicted_picture(pairs, "simulated-and-measured", "Simulated and measured", folder),
            _table(pairs, "Simulated and measured", "treatment", {}),
        ]
    shown, mistakes = fits_of(results.folder, results.plan)
    for position, fit in enumerate(shown, 1):
        blocks += _fit_blocks(fit, f"fit-{position}-{slug(fit.model.name)}", folder, results.names)
    return [*blocks, *(Text(text=text, kind="warning") for text in mistakes)]


def _fit_blocks(shown: FitShown, name: str, folder: Path, names: Mapping[str, str]) -> list[Block]:
    model = shown.model
    blocks: list[Block] = [Code(text="\n".join(model_lines(model)), caption=f"Fitted model of `{shown.file}`")]
    if model.contradictions:
        blocks.append(Text(text="Unfit for plans: its own trials contradict it.", kind="warning"))
    if shown.changed:
        are = "is" if len(shown.changed) == 1 else "are"
        text = f"{counted(len(shown.changed), 'trial')} of the fit {are} not in this plan any more: fit again."
        blocks.append(Text(text=text, kind="warning"))
    if not shown.pairs:
        why = "" if model.why_no_score else " It is of a version that did not keep them: fit again."
        return [*blocks, Text(text=f"The file has no predictions of held-out trials.{why}", kind="note")]
    title = f"{model.name}, `{shown.file}`"
    return [
        *blocks,
        predicted_picture(shown.pairs, name, title, folder),
        _table(shown.pairs, f"{title}: held-out trials", "trial", names),
    ]


def _table(pairs: Sequence[Pair], caption: str, what: str, names: Mapping[str, str]) -> Table:
    rows = pairs[:MOST_ROWS]
    has_intervals = any(pair.low is not None for pair in pairs)
    columns = [
        column(what, named([pair.what for pair in rows], names)),
        *([column("load", [pair.place for pair in rows])] if what == "trial" else []),
        column("figure", [figure_words(pair.figure) for pair in rows]),
        figures("measured", [known(number(pair.measured)) for pair in rows]),
        figures("predicted", [known(number(pair.predicted)) for pair in rows]),
    ]
    if has_intervals:
        spans = [None if pair.low is None else f"{number(pair.low)} – {number(pair.high)}" for pair in rows]
        columns.append(figures("90 % interval", spans, why="no interval"))
    columns.append(figures("error", [known(f"{'+' * (pair.error > 0)}{percent(pair.error)}") for pair in rows], "%"))
    if has_intervals:
        words = [None if pair.is_hit is None else "yes" if pair.is_hit else "no" for pair in rows]
        columns.append(column("in the interval", words, why="no interval"))
    hits = [pair.is_hit for pair in pairs if pair.is_hit is not None]
    notes = [f"{sum(hits)} of {len(hits)} figures lie in their intervals."] if hits else []
    if what == "trial":
        notes.append(
            "Held out: the model was fitted to the trials of all other treatments, and predicted this one. Its load"
            " lies among theirs (inside), outside of them (beyond), or exceeds the capacity of the server (overload)."
        )
    if more := len(pairs) - len(rows):
        notes.append(f"{more:,} more rows are in the file of the fit.")
    return Table(columns=tuple(columns), caption=caption, footnotes=tuple(notes))
