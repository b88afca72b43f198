"""Figures that were predicted beside those that were measured: from fitted models, and from simulated trials with the
settings of measured ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from seamark.model.results.summary import SummaryRow
from seamark.model.trial import Plan
from seamark.report.ordering import ORIGIN
from seamark.report.source import Results
from seamark.storage.documents import read
from seamark.storage.paths import ScenarioFolder
from seamark_simulate.model.fitted_model import FittedModels, Model, Place
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
