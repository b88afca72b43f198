"""Who slows whom: what parties cost each other under load, from the comparisons of their sets and the stages of their
trials. Pure."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from seamark.analysis.checks.host import OF_PARTIES
from seamark.analysis.metrics.energy import LEAST_STEPS, is_gpu
from seamark.model.parties import SETS, names_in
from seamark.model.results.comparison import Compared, ComparedVerdict, Comparisons
from seamark.model.results.stages import StageFigures
from seamark.model.results.summary import SummaryRow
from seamark.model.results.trial_metrics import TrialMetrics
from seamark.model.service import Value
from seamark.report.source import Results
from seamark.stats.compare import compare_family

SetKey = tuple[frozenset[str], str]
"""The names of a set's parties, and its further factors as text."""
Draw = tuple[dict[str, float], float]
"""The mean power of each counter in W, and the throughput of a party."""
EMPTY: Mapping[SetKey, Sequence[float]] = {}
ENOUGH = 0.95
"""Level of an interval that is shown."""
THROUGHPUT = "throughput"
PREFERRED = ("latency_ms.p50", THROUGHPUT)
"""Metrics of which the first that a party has is its slowdown in a matrix."""
CONFOUNDED = "confounded_with_time"
"""Doubt in a slowdown whose two sides were not measured in turns, as after a retry."""


@dataclass(frozen=True, kw_only=True)
class Slowdown:
    """What one metric of a party becomes beside others, as a ratio to the party alone under the same placement: above
    1 it is slower, for a rate as much as for a time. `low` and `high` are its interval. `doubts` are codes for which
    it does not say what the others cost: CONFOUNDED, and those of OF_PARTIES that make a trial of it SUSPECT."""

    party: str
    beside: tuple[str, ...]
    metric: str
    value: float
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    verdict: ComparedVerdict | None = None
    p_adjusted: float | None = None
    fixed: Mapping[str, Value] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SetFacts:
    """A set of parties as a whole: `progress` is the sum of their throughputs together over alone, where 1 is no
    better than taking turns; `worst` the largest slowdown, `fairness` the smallest share of the throughput alone over
    the largest. `energy` is what the machine uses for the same work together over one party after another, the
    median of the blocks, None where no counter is read in all of them; `energy_low` and `energy_high` are the least
    and the most. `doubts` are those of its slowdowns."""

    parties: tuple[str, ...]
    fixed: Mapping[str, Value]
    progress: float
    worst: float
    fairness: float
    energy: float | None = None
    energy_low: float | None = None
    energy_high: float | None = None
    doubts: tuple[str, ...] = ()


def slowdowns_of(comparisons: Comparisons | None) -> tuple[Slowdown, ...]:
    """Return the slowdowns of parties in each set, against each party alone; nothing where no sets are compared."""
    found = comparisons.comparisons if comparisons is not None else ()
    return tuple(slowdown for compared in found if (slowdown := _slowdown(compared)) is not None)


def cells_of(comparisons: Comparisons | None) -> int:
    """Return how many cells a matrix of slowdowns has, known or not: each party in each set with others, at all
    levels of the other factors."""
    found = comparisons.comparisons if comparisons is not None else ()
    return len({(*cell, _key(one.fixed)) for one in found if one.metric in PREFERRED if (cell := _cell(one))})


def _cell(compared: Compared) -> tuple[str, tuple[str, ...]] | None:
    """Return the party of a comparison and those beside it; None where its baseline is not the party alone."""
    party = compared.workload.partition(".")[2]
    alone, together = names_in(str(compared.base.level)), names_in(str(compared.new.level))
    if compared.factor != SETS.name or alone != (party,) or party not in together:
        return None
    return party, tuple(name for name in together if name != party)


def _key(fixed: Mapping[str, Value]) -> str:
    return str(sorted(fixed.items()))


def _key_alone(party: str, names: Iterable[str], fixed: Mapping[str, Value]) -> str:
    """Return the further factors as text as they are where the party is alone: without the levels of the others."""
    others = {name for name in names if name != party}
    own = {name: level for name, level in fixed.items() if level is not None and name.partition(".")[0] not in others}
    return _key(own)


def _slowdown(compared: Compared) -> Slowdown | None:
    cell = _cell(compared)
    if cell is None or compared.ratio is None:
        return None
    ends = [compared.ratio.value, compared.ratio.low, compared.ratio.high]
    if compared.better == "higher":
        value, high, low = (1 / end if end else None for end in ends)
    else:
        value, low, high = ends
    if value is None:
        return None
    return Slowdown(
        party=cell[0],
        beside=cell[1],
        metric=compared.metric,
        value=value,
        low=low,
        high=high,
        confidence=compared.confidence,
        verdict=compared.verdict,
        p_adjusted=compared.p_adjusted,
        fixed=compared.fixed,
        doubts=_doubts(compared),
    )


def _doubts(compared: Compared) -> tuple[str, ...]:
    sides = (compared.base, compared.new)
    seen = {code for side in sides for code in side.suspect_reasons}
    apart = any(side.apart and side.units < 2 for side in sides)  # as Units.are_apart; further pairs are left out
    return (*(code for code in OF_PARTIES if code in seen), *((CONFOUNDED,) if apart else ()))


def in_matrix(found: Iterable[Slowdown]) -> list[Slowdown]:
    """Return the slowdown of each party in each set that a matrix shows: by the first of PREFERRED that is known."""
    chosen: dict[tuple[str, tuple[str, ...], str], Slowdown] = {}
    for slowdown in found:
        key = (slowdown.party, slowdown.beside, _key(slowdown.fixed))
        if slowdown.metric in PREFERRED:
            known = chosen.get(key)
            if known is None or PREFERRED.index(slowdown.metric) < PREFERRED.index(known.metric):
                chosen[key] = slowdown
    return list(chosen.values())


def sets_of(found: Iterable[Slowdown], energies: Mapping[SetKey, Sequence[float]] = EMPTY) -> list[SetFacts]:
    """Return the facts of each set of which the throughput of every party is known."""
    groups: dict[tuple[frozenset[str], str], list[Slowdown]] = {}
    for slowdown in found:
        key = (frozenset((slowdown.party, *slowdown.beside)), _key(slowdown.fixed))
        groups.setdefault(key, []).append(slowdown)
    facts = []
    for (names, levels), inside in groups.items():
        ratios = energies.get((names, levels), ())
        shares = {slowdown.party: 1 / slowdown.value for slowdown in inside if slowdown.metric == THROUGHPUT}
        if set(shares) == names:
            facts.append(
                SetFacts(
                    parties=tuple(sorted(names)),
                    fixed=inside[0].fixed,
                    progress=sum(shares.values()),
                    worst=max(slowdown.value for slowdown in in_matrix(inside)),
                    fairness=min(shares.values()) / max(shares.values()),
                    energy=median(ratios) if ratios else None,
                    energy_low=min(ratios, default=None),
                    energy_high=max(ratios, default=None),
                    doubts=tuple(dict.fromkeys(code for slowdown in inside for code in slowdown.doubts)),
                )
            )
    return facts


def energies_of(results: Results) -> dict[SetKey, list[float]]:
    """Return by block what the machine uses in each set for the same work, together over one party after another.

    Together it draws the power P; alone each party has the power P_i, and together it does the share s_i of its
    throughput alone: the ratio is P / sum(s_i P_i). Power is that of processors and their memory (RAPL), so there is
    no ratio where a party has a GPU, which it alone reads; nor where several trials of a block have the same parties.
    """
    draws: dict[SetKey, dict[int, dict[str, Draw | None]]] = {}
    levels_of: dict[str, Mapping[str, Value]] = {}
    for row in results.treatments:
        party, names, fixed = _in_set(row)
        levels_of[_key(fixed)] = fixed
        key = _key(fixed) if len(names) > 1 else _key_alone(party, names, fixed)
        blocks = draws.setdefault((frozenset(names), key), {})
        for view in results.trials_of(row):
            if view.good and view.verdict != "INVALID" and view.good.throughput.value:
                draw = _watts(view.good), view.good.throughput.value
                parties = blocks.setdefault(view.trial.block, {})
                parties[party] = None if party in parties else draw
    ratios: dict[SetKey, list[float]] = {}
    for (members, levels), blocks in draws.items():
        for block, together in blocks.items() if len(members) > 1 else ():
            keys = [(frozenset((name,)), _key_alone(name, members, levels_of[levels])) for name in members]
            alone = [draws.get(key, {}).get(block, {}).get(next(iter(key[0]))) for key in keys]
            beside = [together.get(name) for name in members]
            pairs = [(one, other) for one, other in zip(alone, beside, strict=True) if one and other]
            watched = {tuple(watts) for pair in pairs for watts, _ in pair}
            if len(pairs) == len(members) and len(watched) == 1 and all(watched):
                in_turns = sum(now[1] / before[1] * sum(before[0].values()) for before, now in pairs)
                ratios.setdefault((members, levels), []).append(sum(pairs[0][1][0].values()) / in_turns)
    return ratios


def _watts(metrics: TrialMetrics) -> dict[str, float]:
    """Return the mean power of each counter of energy; nothing where one does not move, or a GPU is read."""
    series = {name: found for name, found in metrics.telemetry.items() if name.endswith(".energy_j")}
    gpus = any(is_gpu(name.partition(".")[0]) for name in metrics.telemetry)
    still = any(found.mean <= 0 or found.n < LEAST_STEPS for found in series.values())
    return {} if gpus or still else {name: series[name].mean for name in sorted(series)}


@dataclass(frozen=True, kw_only=True)
class StageSlowdown:
    """What a party's mean time in a stage becomes beside others, by block as a ratio to the party alone.

    `what` it does there is run or wait; `ms` is by how much a visit differs. `low` and `high` are its 95 %
    interval by itself, None where so few blocks have none."""

    party: str
    beside: tuple[str, ...]
    stage: str
    what: str
    value: float
    low: float | None
    high: float | None
    ms: float
    fixed: Mapping[str, Value] = field(default_factory=dict)


def stage_slowdowns_of(results: Results) -> tuple[StageSlowdown, ...]:
    """Return the slowdowns of each party's stages in each set; a time that is zero in any trial has no ratio."""
    alone: dict[tuple[str, str], SummaryRow] = {}
    for row in results.treatments:
        party, names, fixed = _in_set(row)
        if names == (party,):
            alone[row.workload, _key_alone(party, names, fixed)] = row
    found = []
    for row in results.treatments:
        party, names, fixed = _in_set(row)
        base = alone.get((row.workload, _key_alone(party, names, fixed)))
        if base is None or base is row or party not in names:
            continue
        for stage, what, before, after in _times(results, base, row):
            compared = compare_family({stage: (before, after)}, better="lower")[stage]
            ratio = compared.ratio
            if ratio is not None:
                sure = ratio.confidence >= ENOUGH
                found.append(
                    StageSlowdown(
                        party=party,
                        beside=tuple(name for name in names if name != party),
                        stage=stage,
                        what=what,
                        value=ratio.estimate,
                        low=ratio.low if sure else None,
                        high=ratio.high if sure else None,
                        ms=compared.shift.estimate,
                        fixed=fixed,
                    )
                )
    return tuple(found)


def _in_set(row: SummaryRow) -> tuple[str, tuple[str, ...], Mapping[str, Value]]:
    """Return the party of a row, the set that it was measured in, and its further factors."""
    party = row.workload.partition(".")[2]
    fixed = {name: value for name, value in row.factors.items() if name != SETS.name}
    return party, names_in(str(row.factors.get(SETS.name, ""))), fixed


def _times(
    results: Results, base: SummaryRow, row: SummaryRow
) -> Iterator[tuple[str, str, dict[Hashable, float], dict[Hashable, float]]]:
    """Yield each stage, what is done there, and its mean times in ms by block: alone, then beside others."""
    stages = [
        {
            view.trial.block: view.good.stages.by_stage
            for view in results.trials_of(one)
            if view.good and view.good.stages
        }
        for one in (base, row)
    ]
    names = dict.fromkeys(name for by_block in stages for found in by_block.values() for name in found)
    for name in names:
        for what in ("run", "wait"):
            sides: list[dict[Hashable, float]] = [{}, {}]
            for side, by_block in zip(sides, stages, strict=True):
                for block, found in by_block.items():
                    if (ms := _mean(found.get(name), what)) is not None:
                        side[block] = ms
            if all(sides):
                yield name, what, sides[0], sides[1]


def _mean(stage: StageFigures | None, what: str) -> float | None:
    if stage is None:
        return None
    times = stage.run_ms if what == "run" else stage.wait_ms
    return times.mean if times is not None else None
