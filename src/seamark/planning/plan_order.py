"""The deployments of a plan as units of an order: when each begins and ends, what it waits for, how many run at once.

Pure but for an order's own function, which is called.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from seamark.config.levels import show
from seamark.dispatch.order import Order, Unit, order_of, unknown_factors
from seamark.model.plurals import counted
from seamark.model.service import Service, Value
from seamark.model.trial import RESOURCES, Plan, Trial
from seamark.planning.plan_time import Span, time_of

_OF_DEPLOYMENT = ("service", "block", *RESOURCES)
MOST_ROWS = 40
"""Deployments that the text of an order lists; its JSON has all of them."""
MOST_NAMED = 3
MOST_LISTED = 100


@dataclass(frozen=True, kw_only=True)
class PlannedUnit:
    """A deployment in an order, with the times from the first one's begin that its typical length gives. `levels`
    are those of what varies between deployments.

    By the order alone it begins after the end of the deployments `waits_for`, of which there are `waits_for_count`
    and the first MOST_LISTED are named, and while fewer than `limit` of its group run; None: no limit. `wave` is the
    length of the longest chain of such waits that ends with it.
    """

    id: str
    levels: Mapping[str, Value]
    wave: int
    begins_s: float
    ends_s: float
    waits_for: tuple[str, ...]
    waits_for_count: int
    limit: int | None


@dataclass(frozen=True, kw_only=True)
class PlannedOrder:
    """What an order makes of a plan on so many lanes. `length_s` is the time of all deployments: the shortest, the
    typical and the longest."""

    order: str
    lanes: int
    most_at_once: int
    waves: int
    length_s: tuple[float, float, float]
    units: tuple[PlannedUnit, ...]


def units_of(
    plan: Plan, services: Mapping[str, Service], spans: Mapping[str, Span] | None = None
) -> tuple[Unit, ...]:
    """Return a unit for each deployment of a plan that `spans` has a time of, by default for all, in their order; but
    for simulations, which take no lane. Its levels are those of `_OF_DEPLOYMENT`, every setting of a deployment of
    the plan (None: another service's), and each factor of which all of its trials have one level."""
    spans = time_of(plan, services).deployments if spans is None else spans
    settings = {name: None for deployment in plan.deployments for name in deployment.settings}
    factors = dict.fromkeys(name for levels in plan.factors.values() for name in levels if name not in _OF_DEPLOYMENT)
    trials = plan.by_deployment()
    return tuple(
        Unit(
            id=deployment.id,
            estimated_s=spans[deployment.id].typical,
            levels={name: getattr(deployment, name) for name in _OF_DEPLOYMENT}
            | settings
            | dict(deployment.settings)
            | _shared(factors, trials[deployment.id]),
        )
        for deployment in plan.deployments
        if deployment.id in spans and not services[deployment.service].virtual_clock
    )


def _shared(factors: Iterable[str], trials: Sequence[Trial]) -> dict[str, Value]:
    """Return the levels of factors that all of these trials have in common."""
    levels = {name: {trial.settings[name] for trial in trials if name in trial.settings} for name in factors}
    return {name: next(iter(values)) for name, values in levels.items() if len(values) == 1}


def unrollable(units: Sequence[Unit]) -> tuple[str, ...]:
    """Return the names of what an order may unroll: settings of which each unit has one level, and not all the
    same."""
    names = dict.fromkeys(name for unit in units for name in unit.levels)
    levels = {name: [unit.levels[name] for unit in units if name in unit.levels] for name in names}
    return tuple(name for name, values in levels.items() if len(values) == len(units) and len({*values}) > 1)


def checked_order(text: str, units: Sequence[Unit]) -> Order:
    """Return the order of a site or scenario for these units. Raises ValueError for a factor that it cannot unroll,
    UserError where a function of the user's own fails."""
    order = order_of(text)
    if mistake := unknown_factors(order, unrollable(units)):
        raise ValueError(mistake)
    if units:
        order.next_of(units)  # a function of the user's own fails here, not in the middle of the run
    return order


def begun_in(order: Order, units: Sequence[Unit]) -> list[str]:
    """Return the ids of units in the order in which they begin one at a time."""
    return [unit for unit, *_ in _run(order, units, 1, lambda unit: unit.estimated_s)]


def planned_order(
    order: Order, units: Sequence[Unit], lanes: int, spans: Mapping[str, Span], factors: Collection[str]
) -> PlannedOrder:
    """Return what an order makes of these units on so many lanes, by the spans of their times. `factors` are those
    of the plan."""
    ran = list(_run(order, units, lanes, lambda unit: spans[unit.id].typical))
    at = {unit.id: index for index, unit in enumerate(units)}
    varied = [name for name in unrollable(units) if name in (*_OF_DEPLOYMENT, *factors)]
    steps, rows = order.arranged(units), []
    waves: dict[int, int] = {}
    last: dict[tuple[int, ...], int] = {(): 0}
    for name, begins_s, ends_s in ran:
        wait = steps.waits(at[name])
        if wait.after not in last:
            last[wait.after] = max(waves[index] for index in wait.after)
        wave = waves[at[name]] = last[wait.after] + 1
        rows.append(
            PlannedUnit(
                id=name,
                levels={key: level for key in varied if (level := units[at[name]].levels[key]) is not None},
                wave=wave,
                begins_s=begins_s,
                ends_s=ends_s,
                waits_for=tuple(units[index].id for index in wait.after[:MOST_LISTED]),
                waits_for_count=len(wait.after),
                limit=wait.limit,
            )
        )
    return PlannedOrder(
        order=order.text,
        lanes=lanes,
        most_at_once=_most_at_once(rows),
        waves=max(waves.values(), default=0),
        length_s=(
            _length_s(order, units, lanes, lambda unit: spans[unit.id].least),
            max((row.ends_s for row in rows), default=0.0),
            _length_s(order, units, lanes, lambda unit: spans[unit.id].most),
        ),
        units=tuple(rows),
    )


def _length_s(order: Order, units: Sequence[Unit], lanes: int, length_of: Callable[[Unit], float]) -> float:
    return max((ends_s for _, _, ends_s in _run(order, units, lanes, length_of)), default=0.0)


def _run(
    order: Order, units: Sequence[Unit], lanes: int, length_of: Callable[[Unit], float]
) -> Iterator[tuple[str, float, float]]:
    """Yield each unit as it begins on the first lane that falls free: its id, and when it begins and ends, in s."""
    steps, now_s = order.arranged([replace(unit, state="waiting") for unit in units]), 0.0
    running: list[tuple[float, int]] = []
    while True:
        while len(running) < lanes and (at := steps.next()) is not None:
            steps.begin(at)
            ends_s = now_s + length_of(units[at])
            yield units[at].id, now_s, ends_s
            heappush(running, (ends_s, at))
        if not running:
            return
        now_s = running[0][0]
        while running and running[0][0] <= now_s:
            steps.end(heappop(running)[1])


def _most_at_once(rows: Sequence[PlannedUnit]) -> int:
    changes = sorted((time_s, change) for row in rows for time_s, change in ((row.begins_s, 1), (row.ends_s, -1)))
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def explained(planned: PlannedOrder, duration: Callable[[float], str]) -> Iterator[str]:
    """Yield the lines of `bench plan --explain`."""
    least_s, typical_s, most_s = planned.length_s
    deployments, waves = counted(len(planned.units), "deployment"), counted(planned.waves, "wave")
    yield (
        f"Order {planned.order}: {deployments} in {waves}, at most {planned.most_at_once} at once;"
        f" about {duration(typical_s)} ({duration(least_s)} to {duration(most_s)})"
    )
    numbers = {row.id: number for number, row in enumerate(planned.units, 1)}
    yield f"  {'':>4} {'wave':>4}  {'begins':>12} {'ends':>12}  {'deployment':<40} waits for"
    for row in planned.units[:MOST_ROWS]:
        named = ", ".join(f"{name} {show(level)}" for name, level in row.levels.items()) or row.id
        times = f"{duration(row.begins_s):>12} {duration(row.ends_s):>12}"
        yield f"  {numbers[row.id]:>4} {row.wave:>4}  {times}  {named:<40} {_waits(row, numbers)}".rstrip()
    if (more := len(planned.units) - MOST_ROWS) > 0:
        yield f"  ... and {more} more (--json has all)"


def _waits(row: PlannedUnit, numbers: Mapping[str, int]) -> str:
    places, count = sorted(numbers[name] for name in row.waits_for), row.waits_for_count
    after = ", ".join(map(str, places[:MOST_NAMED]))
    if count > MOST_NAMED:
        whole = len(places) == count and places[-1] - places[0] == count - 1
        after = f"{places[0]} to {places[-1]}" if whole else f"{after} and {count - MOST_NAMED} more"
    free = f"fewer than {row.limit} running" if row.limit is not None else ""
    return ", then ".join(filter(None, (after, free)))
