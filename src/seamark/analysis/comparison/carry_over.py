"""Whether results depend on what ran before them: treatments in succession, and the effects of predecessors. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, inf, log

import numpy as np

from seamark.analysis.comparison.contrasts import Succession, fewest_blocks, primaries, successions
from seamark.analysis.comparison.metric_names import default_metrics, metric_of
from seamark.analysis.comparison.observations import VIRTUAL, Observation
from seamark.model.plurals import counted
from seamark.model.results.comparison import CarryOver, Effect, Predecessors
from seamark.model.results.trial_metrics import VerdictReason
from seamark.model.scenario import Comparing
from seamark.model.service import Quality, Value
from seamark.model.trial import Plan, levels_of, party_of
from seamark.stats.carry_over import PredecessorEffect, predecessor_effects
from seamark.stats.compare import ALPHA

CARRY_OVER = "carry_over"
MOST_NAMED = 3
"""Pairs of predecessors that a reason names."""
FRESH = "`fresh_server: true` in the workload gives each treatment a server that no other one was measured on."
MACHINE = (
    "Each of them has a start of its server already, so the machine carries over: page cache, heat or clocks. Raise"
    " `warmup_s` until it does not."
)


def carried_over(
    plan: Plan,
    seen: Mapping[str, Sequence[Observation]],
    comparing: Comparing,
    qualities: Mapping[str, Quality],
    where: str = "",
    alpha: float = ALPHA,
) -> tuple[CarryOver, ...]:
    """Return what each succession of a plan says of carry-over, by the first metric that `comparing` asks for;
    nothing where it does not ask for carry-over. `seen` has the trials of each treatment; those on a virtual clock
    carry nothing over.

    All successions share alpha. Raises UserError, which begins with `where`, for a metric that no trial has.
    """
    if not comparing.carry_over:
        return ()
    levels, primary = levels_of(plan), primaries(plan)
    factors = {name for of_treatment in levels.values() for name in of_treatment}
    declared = [name for name in comparing.family if name not in factors] or comparing.metrics
    measured = [
        (succession, trials)
        for succession in successions(plan)
        if (trials := [trial for name in succession.treatments for trial in seen.get(name, ()) if trial.counts])
        if all(trial.start != VIRTUAL for trial in trials)
    ]
    found = []
    for succession, trials in measured:
        name = next(iter(declared or default_metrics(primary[succession.workload], trials)))
        metric = metric_of(name, trials, qualities, where)
        rows = _rows(succession, seen, metric.path)
        found.append(_carried_over(succession, metric.name, rows, levels, len(measured), alpha))
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class _Row:
    """The logarithm of one trial's value, its block, and the places of its treatment and of its predecessor in the
    succession: -1 for another predecessor, or none."""

    log: float
    block: tuple[str, int]
    treatment: int
    predecessor: int


def _rows(succession: Succession, seen: Mapping[str, Sequence[Observation]], path: str) -> list[_Row]:
    """Return the positive values of a succession. A predecessor is what really ran last before the trial: on its
    server, or where each has its own, on the machine. Where two overlap there is none."""
    place = {treatment: number for number, treatment in enumerate(succession.treatments)}
    timed = [(trial.span_s, trial) for trials in seen.values() for trial in trials if trial.span_s is not None]
    last: dict[str | None, tuple[float, int]] = {}
    rows = []
    for (began_s, ended_s), trial in sorted(timed, key=lambda pair: pair[0]):
        own = place.get(trial.treatment, -1)
        line = trial.start if succession.shared else party_of(trial.trial)
        last_ended_s, before = last.get(line, (inf, -1))
        last[line] = ended_s, own
        ends = trial.figure(path) if trial.counts and own >= 0 else None
        if ends is not None and ends.low > 0:
            block = trial.start if succession.shared else "", trial.block
            predecessor = before if last_ended_s <= began_s else -1
            rows.append(_Row(log=log(ends.low), block=block, treatment=own, predecessor=predecessor))
    return rows


def _carried_over(
    succession: Succession,
    metric: str,
    rows: Sequence[_Row],
    levels: Mapping[str, Mapping[str, Value]],
    families: int,
    alpha: float,
) -> CarryOver:
    numbers = {block: number for number, block in enumerate(dict.fromkeys(row.block for row in rows))}
    blocks = np.array([numbers[row.block] for row in rows], dtype=np.int64)
    record = CarryOver(
        workload=succession.workload,
        metric=metric,
        treatments=succession.treatments,
        blocks=int(np.count_nonzero(np.bincount(blocks) > 1)),
        blocks_needed=fewest_blocks(len(succession.treatments)),
    )
    if record.blocks < record.blocks_needed:
        return record
    effects = predecessor_effects(
        np.array([row.log for row in rows]),
        blocks,
        np.array([row.treatment for row in rows]),
        np.array([row.predecessor for row in rows]),
        alpha=alpha,
        families=families,
    )
    pairs = tuple(_pair(succession.treatments, effect, levels) for effect in effects)
    shown = [pair for pair in pairs if pair.p_adjusted <= alpha]
    if not shown:
        return replace(record, pairs=pairs)
    texts = [
        f"after {_words(pair.new_levels)} it is {pair.ratio.value:.3g} x ({pair.ratio.low:.3g} to"
        f" {pair.ratio.high:.3g}) that after {_words(pair.base_levels)}"
        for pair in shown[:MOST_NAMED]
    ]
    more = f" ({counted(len(shown) - MOST_NAMED, 'more pair')})" if len(shown) > MOST_NAMED else ""
    reason = VerdictReason(
        code=CARRY_OVER,
        severity="suspect",
        text=f"{metric} depends on what ran before: {', '.join(texts)}{more}",
        remedy=FRESH if succession.shared else MACHINE,
    )
    return replace(record, pairs=pairs, reason=reason)


def _pair(
    treatments: Sequence[str], found: PredecessorEffect, levels: Mapping[str, Mapping[str, Value]]
) -> Predecessors:
    """Return a pair with the predecessor of the larger results as `new`, and the levels that vary among the
    treatments."""
    effect = found.effect
    base, new, ends = treatments[found.base], treatments[found.new], (effect.estimate, effect.low, effect.high)
    if effect.estimate < 0:
        base, new, ends = new, base, (-effect.estimate, -effect.high, -effect.low)
    varied = [name for name in levels[base] if len({levels[of].get(name) for of in treatments}) > 1]
    return Predecessors(
        base=base,
        new=new,
        base_levels={name: levels[base][name] for name in varied},
        new_levels={name: levels[new][name] for name in varied},
        ratio=Effect(value=exp(ends[0]), low=exp(ends[1]), high=exp(ends[2])),
        confidence=effect.confidence,
        p=found.p,
        p_adjusted=found.p_adjusted,
    )


def _words(levels: Mapping[str, Value]) -> str:
    return ", ".join(f"{name} {value}" for name, value in levels.items())
