"""Blocks of comparisons: a figure of the intervals, a table with verdicts, and what both rest on."""

from collections.abc import Iterable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from seamark.model.plurals import counted
from seamark.model.results.comparison import Compared, Comparisons
from seamark.report.compared_answers import items_text
from seamark.report.comparison import (
    NO_VERDICT,
    basis,
    contrast_text,
    effect_text,
    origin_text,
    p_number,
    reason_text,
    side_texts,
    verdict_text,
)
from seamark.report.figures.canvas import COLOURS, INK, MUTED, SHADE, drawing, log_ticks, picture_of
from seamark.report.numbers import number
from seamark.report.ordering import ORIGIN
from seamark.report.page.content import Block, Fold, Picture, Table, Text, column, figures
from seamark.report.source import Results

MOST_ROWS, MOST_DRAWN, MOST_COLUMNS = 200, 24, 3
SIDE = "median of the values that are tested, of answers the mean score"
EFFECT = "new to baseline: Hodges-Lehmann, exact interval; of answers the difference of mean scores"
LOOKS: Mapping[str | None, tuple[str, str]] = {
    "better": ("^", COLOURS[2]),
    "worse": ("v", COLOURS[1]),
    "equivalent": ("s", COLOURS[0]),
    "inconclusive": ("o", MUTED),
    None: ("o", "#b6bcc6"),
}
"""Verdict -> marker and colour; None: there is none."""


def comparison_blocks(results: Results) -> list[Block]:
    """Return the comparisons of a scenario with their intervals; nothing where it compares nothing."""
    comparisons = results.summary.comparisons
    if comparisons is None:
        return []
    drawn = _pictures(comparisons)
    declared = [compared for compared in comparisons.comparisons if compared.in_family and comparisons.declared]
    others = [compared for compared in comparisons.comparisons if not (compared.in_family and comparisons.declared)]
    blocks: list[Block] = [*drawn, _table(comparisons, declared)] if declared else []
    if others:
        inside = (*(() if declared else drawn), _table(comparisons, others))
        blocks.append(Fold(title=f"{counted(len(others), 'comparison')} that nobody declared", blocks=inside))
    return [*blocks, *(Text(text=text) for text in basis(comparisons))]


def _pictures(found: Comparisons) -> list[Picture]:
    """Draw the ratio of each comparison with its interval; nothing where none has one."""
    bounded = [one for one in found.comparisons if one.ratio is not None and one.ratio.low and one.ratio.high]
    if not bounded:
        return []
    rows = list(dict.fromkeys(contrast_text(compared, found) for compared in bounded))
    shown, more = rows[:MOST_DRAWN], len(rows) - MOST_DRAWN
    metrics = list(dict.fromkeys(compared.metric for compared in bounded))[:MOST_COLUMNS]
    longest = max(map(len, shown))
    with drawing(max(7.0, 2.4 * len(metrics) + 0.07 * longest), 0.34 * len(shown) + 1.3) as figure:
        axes = figure.subplots(1, len(metrics), squeeze=False, sharey=True)[0]
        for axis, metric in zip(axes, metrics, strict=True):
            of_metric = [
                (contrast_text(compared, found), compared) for compared in bounded if compared.metric == metric
            ]
            own = [(shown.index(row), compared) for row, compared in of_metric if row in shown]
            draw_ratios(axis, own, found.margin)
            limits = [
                limit
                for _, compared in own
                if (ratio := compared.ratio)
                for limit in (ratio.low, ratio.high)
                if limit
            ]
            if limits and max(limits) / min(limits) > 4:
                axis.set_xscale("log")
                log_ticks(axis.xaxis, min(limits), max(limits))
            else:
                axis.xaxis.set_major_locator(MaxNLocator(5))
            axis.set_title(metric)
            axis.set_xlabel("ratio to the baseline")
        axes[0].set_yticks(range(len(shown)), shown)
        axes[0].set_ylim(len(shown) - 0.4, -0.6)
        label_verdicts(figure, axes[0], bounded)
        left_out = f" Not drawn: {counted(more, 'comparison')}." if more > 0 else ""
        picture = picture_of(
            figure,
            "comparisons",
            alt=f"Intervals of {counted(len(shown), 'comparison')} by {', '.join(metrics)}",
            caption="Ratio of new to baseline with its exact interval. The line is no difference, the band the"
            f" margin of {100 * found.margin:g} % within which levels are equivalent.{left_out}",
        )
    return [picture]


def draw_ratios(axis: Axes, rows: Iterable[tuple[int, Compared | None]], margin: float) -> None:
    """Draw ratios with their intervals in rows, against no difference and the margin."""
    axis.axvspan(1 / (1 + margin), 1 + margin, color=SHADE, zorder=0)
    axis.axvline(1.0, color=INK, lw=1.0, zorder=1)
    for row, compared in rows:
        if compared is None or compared.ratio is None:
            continue
        marker, colour = LOOKS[compared.verdict]
        low, high = (
            compared.ratio.value if end is None else end for end in (compared.ratio.low, compared.ratio.high)
        )
        axis.hlines(row, low, high, color=colour, lw=1.8, zorder=2)
        axis.plot([compared.ratio.value], [row], marker=marker, color=colour, ms=6, zorder=3)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axis.grid(axis="y", visible=False)


def label_verdicts(figure: Figure, axis: Axes, shown: Iterable[Compared]) -> None:
    """Draw a legend with the look of each verdict."""
    for verdict in dict.fromkeys(compared.verdict for compared in shown):
        marker, colour = LOOKS[verdict]
        axis.plot([], [], ls="-", lw=1.8, marker=marker, color=colour, label=verdict or NO_VERDICT)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside upper left", ncols=5)


def _table(found: Comparisons, compared: Sequence[Compared]) -> Table:
    shown = compared[:MOST_ROWS]
    base, new = zip(*map(side_texts, shown), strict=True)
    scored = any(row.answers for row in shown)
    texts = [reason_text(row) for row in shown]
    reasons = list(dict.fromkeys(filter(None, texts)))
    marks = [f"{reasons.index(text) + 1}" if text else "" for text in texts]
    origins = (column(ORIGIN, [origin_text(row) for row in shown]),) if found.simulated else ()
    columns = (
        column("comparison", [contrast_text(row, found) for row in shown]),
        *origins,
        column("metric", [row.metric for row in shown], "code"),
        figures("baseline", base, "", SIDE),
        figures("new", new, "", SIDE),
        figures("effect" if scored else "ratio", [effect_text(row) for row in shown], "", EFFECT),
        *((column("items", [items_text(row.answers) if row.answers else "" for row in shown]),) if scored else ()),
        figures("p", [p_number(row) or None for row in shown], "", why="no p is given"),
        column("verdict", [verdict_text(row) for row in shown], "verdict"),
        column("note", marks),
    )
    more = len(compared) - len(shown)
    left_out = (f"{more:,} more are printed by `bench compare`.",) if more else ()
    return Table(columns=columns, footnotes=(*(f"{at}: {text}" for at, text in enumerate(reasons, 1)), *left_out))
