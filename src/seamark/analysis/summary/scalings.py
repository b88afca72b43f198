"""Scaling in a scenario: speed-up, efficiency and the laws' fits of each sweep by GPUs, nodes or concurrency."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, log
from statistics import fmean

from seamark.analysis.summary.knees import Point, is_number
from seamark.model.results.summary import Scaling
from seamark.model.service import Value
from seamark.stats.scaling import LEAST, scaling

FACTORS = {"gpus": 2, "nodes": 2, "concurrency": LEAST}
"""What adds workers, and the fewest levels: two numbers of users are a comparison."""


def scalings(points: Sequence[Point]) -> tuple[Scaling, ...]:
    """Return the scaling of every sweep with all other settings fixed.

    A setting that changes with the factor alone, as `tensor_parallel` with `gpus`, is no other setting. Only
    repetitions that have every level count.
    """
    return tuple(
        _scaling(factor, fixed, group)
        for workload in dict.fromkeys(point.workload for point in points)
        for factor in FACTORS
        for fixed, group in _sweeps(factor, [point for point in points if point.workload == workload])
    )


def _sweeps(factor: str, points: Sequence[Point]) -> list[tuple[dict[str, Value], list[Point]]]:
    points = [point for point in points if is_number(point.factors.get(factor))]
    names = sorted({name for point in points for name in point.factors if not _follows(name, factor, points)})
    groups: dict[tuple[Value, ...], list[Point]] = {}
    for point in points:
        groups.setdefault(tuple(point.factors.get(name) for name in names), []).append(point)
    return [
        (dict(zip(names, key, strict=True)), sorted(group, key=lambda point: float(point.factors[factor] or 0)))
        for key, group in groups.items()
        if len(group) >= FACTORS[factor]
    ]


def _follows(name: str, factor: str, points: Sequence[Point]) -> bool:
    """Return whether a setting has one level for each of the factor, and the other way round."""
    pairs = {(point.factors.get(name), point.factors[factor]) for point in points}
    return len(pairs) == len({level for level, _ in pairs}) == len({level for _, level in pairs})


def _scaling(factor: str, fixed: dict[str, Value], points: Sequence[Point]) -> Scaling:
    found = Scaling(
        workload=points[0].workload,
        factor=factor,
        fixed=fixed,
        levels=tuple(point.factors[factor] for point in points),
        doubts=tuple(sorted({code for point in points for code in point.doubts})),
    )
    blocks = [block for block in points[0].capacity if all(block in point.capacity for point in points)]
    units = {point.unit for point in points}
    if len(units) > 1 or not blocks:
        return replace(found, refused=_why(units, points))
    rates = [[point.capacity[block] for point in points] for block in blocks]
    curve = scaling([float(level) for level in found.levels], rates)  # type: ignore[arg-type]
    return replace(
        found,
        blocks=len(blocks),
        unit=points[0].unit,
        throughput=tuple(exp(fmean(map(log, level))) for level in zip(*rates, strict=True)),
        speedup=curve.speedup,
        efficiency=curve.efficiency,
        fits=curve.fits,
    )


def _why(units: set[str | None], points: Sequence[Point]) -> str:
    if len(units) > 1:
        return "throughput has several units"
    if any(not point.capacity and point.seen for point in points):
        return "an open loop below saturation gets what it offers: its throughput is no capacity"
    return "no repetition has every level"
