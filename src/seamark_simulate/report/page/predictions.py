"""Section of predictions: fitted models with what they predicted of held-out trials, simulated beside measured, and
predicted against measured figures drawn: a panel for each figure, a mark for each place of the load."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from seamark.model.plurals import counted
from seamark.model.results.summary import SummaryRow
from seamark.model.trial import Plan
from seamark.report.figures.canvas import COLOURS, INK, drawing, picture_of, plain_numbers
from seamark.report.numbers import number, percent
from seamark.report.ordering import ORIGIN
from seamark.report.page.content import Block, Code, Picture, Table, Text, column, figures, named
from seamark.report.source import Results, slug
from seamark.storage.documents import read
from seamark.storage.paths import ScenarioFolder
from seamark_simulate.model.fitted_model import FittedModels, Model, Place
from seamark_simulate.report.fitted import model_lines
from seamark_simulate.report.schedules import label_of

OF_EVERY_TRIAL = frozenset(("batch", "concurrency"))
"""Settings that metrics.json names for every trial, with a default where its service has none: no simulated load has
connections. They tell treatments apart only as factors."""
FITS = "*.fit.json"
"""Files of `bench fit` in a scenario's folder of results: its report shows them."""
FACTS = ("place", "figure", "measured", "predicted", "low", "high")
"""Fields of `HeldOutFigure` that a pair has too."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One figure, measured and predicted, in the unit of its name; `low` and `high` bound the prediction, None
    without an interval. `what` names trial or treatment. `place`: held out, with a load among those of
    the fit, outside of them or too much to serve, or from simulated trials, for which nothing was held out."""

    what: str
    place: Place | Literal["twin"]
    figure: str
    measured: float
    predicted: float
    low: float | None = None
    high: float | None = None

    @property
    def error(self) -> float:
        """The relative error of the prediction, negative where it is too low."""
        return self.predicted / self.measured - 1

    @property
    def is_hit(self) -> bool | None:
        """Whether the measured figure lies in the interval; None without one."""
        return None if self.low is None or self.high is None else self.low <= self.measured <= self.high


@dataclass(frozen=True, kw_only=True)
class FitShown:
    """A model of a fit file. `changed` are its trials of this scenario that are not those of the plan any more."""

    file: str
    model: Model
    pairs: tuple[Pair, ...]
    changed: tuple[str, ...] = ()


def fits_of(folder: ScenarioFolder, plan: Plan) -> tuple[list[FitShown], list[str]]:
    """Return the models of all fit files in a scenario's folder, and a line for each file that cannot be shown."""
    known = {trial.id: trial.config_hash for trial in plan.measured}
    shown: list[FitShown] = []
    mistakes: list[str] = []
    for path in sorted(folder.root.glob(FITS)):
        try:
            fitted = read(path, FittedModels)
        except (OSError, ValueError):
            mistakes.append(f"`{path.name}` is no file of `bench fit`, or is damaged: fit again, or remove it.")
            continue
        for model in fitted.models:
            sources = [source for source in model.sources if source.scenario == plan.scenario]
            changed = tuple(source.trial for source in sources if known.get(source.trial) != source.config_hash)
            held_out = (vars(figure) for figure in model.held_out if figure.measured > 0)
            pairs = tuple(Pair(what=facts["trial"], **{name: facts[name] for name in FACTS}) for facts in held_out)
            shown.append(FitShown(file=path.name, model=model, pairs=pairs, changed=changed))
    return shown, mistakes


def simulated_pairs(results: Results) -> list[Pair]:
    """Return the figures of simulated treatments beside those of the measured treatment with equal settings."""
    return [pair for simulated, measured in twins(results.treatments) for pair in _pairs(simulated, measured)]


def twins(rows: Sequence[SummaryRow]) -> list[tuple[SummaryRow, SummaryRow]]:
    """Return each simulated treatment with the one measured treatment of equal settings.

    Settings are equal where all that both treatments have are, and each has all factors of the other. A treatment
    with several such counterparts has none: what tells those apart is not simulated.
    """
    simulated = [row for row in rows if row.virtual_clock and row.repetitions]
    measured = [row for row in rows if row.repetitions and not row.virtual_clock]
    pairs = []
    for row in simulated:
        alike = [other for other in measured if is_twin(row, other)]
        if len(alike) == 1 and sum(is_twin(other, alike[0]) for other in simulated) == 1:
            pairs.append((row, alike[0]))
    return pairs


def is_twin(one: SummaryRow, other: SummaryRow) -> bool:
    """Return whether two treatments have equal settings."""
    factors = {*one.factors, *other.factors} - {ORIGIN, "server"}
    common = (one.config.keys() & other.config.keys()) - (OF_EVERY_TRIAL - factors)
    return bool(factors) and factors <= common and all(one.config[name] == other.config[name] for name in common)


def _pairs(simulated: SummaryRow, measured: SummaryRow) -> Iterator[Pair]:
    what = label_of(measured, [name for name in measured.factors if name != ORIGIN]) or measured.workload
    for figure, predicted, other in _figures(simulated, measured):
        if predicted is not None and other is not None and other > 0:
            yield Pair(what=what, place="twin", figure=figure, measured=other, predicted=predicted)


def _figures(one: SummaryRow, other: SummaryRow) -> Iterator[tuple[str, float | None, float | None]]:
    """Yield each figure that both treatments have: medians over repetitions, times in seconds."""
    if one.throughput.unit == other.throughput.unit:
        yield one.throughput.unit or "throughput", one.throughput.median, other.throughput.median
    for group, name in (("latency_ms", "response"), ("ttft_ms", "ttft"), ("tpot_ms", "tpot")):
        times, others = getattr(one, group), getattr(other, group)
        for quantile in ("mean", "p50", "p99") if times and others else ():
            one_ms, other_ms = times.statistic(quantile), others.statistic(quantile)
            yield f"{name}_{quantile}_s", one_ms and one_ms / 1e3, other_ms and other_ms / 1e3
    for name in one.quality:
        if name in other.quality:
            yield name, one.quality[name], other.quality[name]


MOST_ROWS = 200
MOST_PANELS, IN_A_ROW = 8, 4
LOOKS: Mapping[str, tuple[str, str, str]] = {
    "inside": ("o", COLOURS[0], "held out, among the loads"),
    "beyond": ("^", COLOURS[1], "held out, outside of the loads"),
    "overload": ("x", COLOURS[3], "held out, more than it can serve"),
    "twin": ("s", COLOURS[2], "simulated trials"),
}
"""Place -> marker, colour, label."""


def prediction_blocks(results: Results) -> list[Block]:
    """Return predictions and measurements side by side; nothing where a scenario has none."""
    blocks: list[Block] = []
    pairs = simulated_pairs(results)
    if pairs:
        blocks += [
            Text(text="Simulated treatments beside the measured ones with equal settings; medians of repetitions."),
            predicted_picture(pairs, "simulated-and-measured", "Simulated and measured"),
            _table(pairs, "Simulated and measured", "treatment", {}),
        ]
    shown, mistakes = fits_of(results.folder, results.plan)
    for position, fit in enumerate(shown, 1):
        blocks += _fit_blocks(fit, f"fit-{position}-{slug(fit.model.name)}", results.names)
    return [*blocks, *(Text(text=text, kind="warning") for text in mistakes)]


def _fit_blocks(shown: FitShown, name: str, names: Mapping[str, str]) -> list[Block]:
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
        predicted_picture(shown.pairs, name, title),
        _table(shown.pairs, f"{title}: held-out trials", "trial", names),
    ]


def _table(pairs: Sequence[Pair], caption: str, what: str, names: Mapping[str, str]) -> Table:
    rows = pairs[:MOST_ROWS]
    has_intervals = any(pair.low is not None for pair in pairs)
    columns = [
        column(what, named([pair.what for pair in rows], names)),
        *([column("load", [pair.place for pair in rows])] if what == "trial" else []),
        column("figure", [figure_words(pair.figure) for pair in rows]),
        figures("measured", [pair.measured for pair in rows]),
        figures("predicted", [pair.predicted for pair in rows]),
    ]
    if has_intervals:
        spans = [None if pair.low is None else f"{number(pair.low)} – {number(pair.high)}" for pair in rows]
        columns.append(figures("90 % interval", spans, why="no interval"))
    columns.append(figures("error", [f"{'+' * (pair.error > 0)}{percent(pair.error)}" for pair in rows], "%"))
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


def predicted_picture(pairs: Sequence[Pair], name: str, title: str) -> Picture:
    """Draw pairs around the line on which prediction and measurement agree; bars are intervals of predictions."""
    figures = list(dict.fromkeys(pair.figure for pair in pairs))[:MOST_PANELS]
    columns = min(IN_A_ROW, len(figures))
    rows = -(-len(figures) // columns)
    with drawing(max(4.6, 2.3 * columns), 2.5 * rows + 0.4) as figure:
        axes = figure.subplots(rows, columns, squeeze=False)
        for axis, metric in zip(axes.flat, figures, strict=False):
            _draw(axis, [pair for pair in pairs if pair.figure == metric])
            axis.set_title(figure_words(metric))
        for axis in list(axes.flat)[len(figures) :]:
            axis.set_axis_off()
        for row in axes:
            row[0].set_ylabel("predicted")
        for axis in list(axes.flat)[max(0, len(figures) - columns) : len(figures)]:
            axis.set_xlabel("measured")
        for place in dict.fromkeys(pair.place for pair in pairs):
            marker, colour, label = LOOKS[place]
            axes[0][0].plot([], [], ls="", marker=marker, color=colour, label=label)
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper left", ncols=3)
        intervals = " Bars are 90 % intervals of the predictions." if any(pair.low for pair in pairs) else ""
        alt = f"{title}: predicted against measured"
        return picture_of(figure, name, alt=alt, caption=f"{alt}. On the line both agree.{intervals}")


def figure_words(figure: str) -> str:
    """Return the name of a figure with its unit: `p50 (s)`, `throughput (requests/s)`."""
    if figure.endswith("_per_s"):
        return f"throughput ({figure.removesuffix('_per_s').replace('_', ' ')}/s)"
    for suffix, unit in (("_rps", "requests/s"), ("_s", "s"), ("_ratio", "ratio")):
        if figure.endswith(suffix):
            return f"{figure.removesuffix(suffix).replace('_', ' ')} ({unit})"
    return figure.replace("_", " ")


def _draw(axis: Axes, own: Sequence[Pair]) -> None:
    values = [value for pair in own for value in (pair.measured, pair.predicted, pair.low, pair.high) if value]
    low, high = min(values), max(values)
    is_wide = low > 0 and high / low > 8
    if is_wide:
        limits = (low / 1.3, high * 1.3)
        axis.set_xscale("log")
        axis.set_yscale("log")
    else:
        limits = (max(0.0, low - 0.1 * (high - low or high)), high + 0.1 * (high - low or high))
    axis.plot(limits, limits, color=INK, lw=0.9, zorder=1)
    for place in LOOKS:
        shown = [pair for pair in own if pair.place == place]
        marker, colour, _ = LOOKS[place]
        for pair in shown:
            if pair.low is not None and pair.high is not None:
                axis.vlines(pair.measured, pair.low, pair.high, color=colour, lw=1.0, alpha=0.6, zorder=2)
        x, y = [pair.measured for pair in shown], [pair.predicted for pair in shown]
        axis.plot(x, y, ls="", marker=marker, color=colour, ms=4.5, zorder=3)
    axis.set_xlim(*limits)
    axis.set_ylim(*limits)
    axis.set_box_aspect(1)
    for scale in (axis.xaxis, axis.yaxis):
        if is_wide:
            subs = (1.0,) if high / low > 100 else (1.0, 3.0)
            scale.set_major_locator(LogLocator(subs=subs, numticks=8))
            scale.set_minor_locator(NullLocator())
        else:
            scale.get_major_locator().set_params(nbins=4)  # type: ignore[call-arg]
        plain_numbers(scale)
