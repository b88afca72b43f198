"""Intervals of comparisons: a row for each, a column for each metric, against no difference and the margin."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from seamark.model.plurals import counted
from seamark.model.results.comparison import Compared, Comparisons
from seamark.report.comparison import NO_VERDICT, contrast_text
from seamark.report.figures.canvas import COLOURS, INK, MUTED, SHADE, drawing, log_ticks, written
from seamark.report.numbers import number
from seamark.report.page.content import Picture

MOST_ROWS, MOST_COLUMNS = 24, 3
LOOKS: Mapping[str | None, tuple[str, str]] = {
    "better": ("^", COLOURS[2]),
    "worse": ("v", COLOURS[1]),
    "equivalent": ("s", COLOURS[0]),
    "inconclusive": ("o", MUTED),
    None: ("o", "#b6bcc6"),
}
"""Verdict -> marker and colour; None: there is none."""


def comparison_pictures(found: Comparisons, folder: Path) -> list[Picture]:
    """Draw the ratio of each comparison with its interval; nothing where none has one."""
    rows = list(
        dict.fromkeys(contrast_text(compared, found) for compared in found.comparisons if _is_bounded(compared))
    )
    metrics = list(dict.fromkeys(compared.metric for compared in found.comparisons if _is_bounded(compared)))[
        :MOST_COLUMNS
    ]
    if not rows:
        return []
    shown = rows[:MOST_ROWS]
    longest = max(map(len, shown))
    with drawing(max(7.0, 2.4 * len(metrics) + 0.07 * longest), 0.34 * len(shown) + 1.3) as figure:
        axes = figure.subplots(1, len(metrics), squeeze=False, sharey=True)[0]
        for axis, metric in zip(axes, metrics, strict=True):
            of_metric = [
                compared for compared in found.comparisons if compared.metric == metric and _is_bounded(compared)
            ]
            _draw(axis, [compared for compared in of_metric if contrast_text(compared, found) in shown], shown, found)
            axis.set_title(metric)
            axis.set_xlabel("ratio to the baseline")
        axes[0].set_yticks(range(len(shown)), shown)
        axes[0].set_ylim(len(shown) - 0.4, -0.6)
        for verdict in dict.fromkeys(compared.verdict for compared in found.comparisons if _is_bounded(compared)):
            marker, colour = LOOKS[verdict]
            label = verdict or NO_VERDICT
            axes[0].plot([], [], ls="-", lw=1.8, marker=marker, color=colour, label=label)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=5)
        more = f" Not drawn: {counted(len(rows) - len(shown), 'comparison')}." if rows[MOST_ROWS:] else ""
        return [
            written(
                figure,
                folder,
                "comparisons",
                alt=f"Intervals of {counted(len(shown), 'comparison')} by {', '.join(metrics)}",
                caption="Ratio of new to baseline with its exact interval. The line is no difference, the band the"
                f" margin of {100 * found.margin:g} % within which levels are equivalent.{more}",
            )
        ]


def _is_bounded(each: Compared) -> bool:
    return each.ratio is not None and bool(each.ratio.low) and bool(each.ratio.high)


def _draw(axis: Axes, own: Sequence[Compared], rows: Sequence[str], found: Comparisons) -> None:
    axis.axvspan(1 / (1 + found.margin), 1 + found.margin, color=SHADE, zorder=0)
    axis.axvline(1.0, color=INK, lw=1.0, zorder=1)
    for compared in own:
        assert compared.ratio is not None
        marker, colour = LOOKS[compared.verdict]
        row = rows.index(contrast_text(compared, found))
        axis.hlines(row, compared.ratio.low or 0.0, compared.ratio.high or 0.0, color=colour, lw=1.8, zorder=2)
        axis.plot([compared.ratio.value], [row], marker=marker, color=colour, ms=6, zorder=3)
    limits = [
        limit for compared in own if compared.ratio for limit in (compared.ratio.low, compared.ratio.high) if limit
    ]
    if limits and max(limits) / min(limits) > 4:
        axis.set_xscale("log")
        log_ticks(axis.xaxis, min(limits), max(limits))
    else:
        axis.xaxis.set_major_locator(MaxNLocator(5))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axis.grid(axis="y", visible=False)
