"""The shortest possible makespan of a small workload, as a mixed integer program solved by HiGHS."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from seamark_simulate.simulation.machine import Machine
from seamark_simulate.simulation.workload import Workload, require_windows

LARGEST_NODES = 12
SOURCE, SINK = -1, -2
"""Predecessor of the first node on a GPU, and successor of the last."""
SOLVE_ERROR = 4
Term = tuple[int, float]


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """Result of the solver. `makespan_s` is the best schedule found, None if none was; `bound_s` is proven to be no
    more than the optimum; `status` and `message` are those of scipy.optimize.milp, and status 0 is optimal."""

    makespan_s: float | None
    bound_s: float | None
    status: int
    message: str

    @property
    def is_proven(self) -> bool:
        """Whether no schedule is shorter."""
        return self.status == 0


@dataclass(kw_only=True)
class _Program:
    """Variables with their bounds, and rows of `low <= sum(terms) <= high`."""

    high: list[float] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)
    rows: list[tuple[list[Term], float, float]] = field(default_factory=list)

    def variable(self, high: float, *, whole: bool = False) -> int:
        """Return a new variable from 0 to `high`."""
        self.high.append(high)
        self.whole.append(int(whole))
        return len(self.high) - 1

    def require(self, terms: list[Term], low: float = -np.inf, high: float = np.inf) -> None:
        """Add a row."""
        self.rows.append((terms, low, high))


def optimum(work: Workload, machine: Machine, *, limit_s: float = 60.0) -> Optimum:
    """Return the optimum of a workload with the times that its nodes take.

    The program chooses a window for each node and the order on each GPU. A node takes its GPUs after its request's
    arrival, its predecessors and the nodes before it on each of its GPUs; the fetch depends on the node before it on
    the first. Raises ValueError for more than LARGEST_NODES nodes, UserError for a model that no window holds.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    if work.nodes > LARGEST_NODES:
        raise ValueError(f"{work.nodes} nodes: the optimum is found for {LARGEST_NODES} at most")
    require_windows(work, machine)
    if not work.nodes:
        return Optimum(makespan_s=0.0, bound_s=0.0, status=0, message="nothing to run")
    program, makespan = _program(work, machine)
    entries = [(row, *term) for row, (terms, _, _) in enumerate(program.rows) for term in terms]
    matrix = csr_array(
        ([entry[2] for entry in entries], ([entry[0] for entry in entries], [entry[1] for entry in entries])),
        shape=(len(program.rows), len(program.high)),
    )
    objective = np.zeros(len(program.high))
    objective[makespan] = 1.0
    for presolve in (True, False):  # HiGHS 1.12 ends some programs with "solve error" in its presolve alone
        solved = milp(
            objective,
            integrality=program.whole,
            bounds=Bounds(0, program.high),
            constraints=LinearConstraint(matrix, [row[1] for row in program.rows], [row[2] for row in program.rows]),
            options={"time_limit": limit_s, "mip_rel_gap": 1e-9, "presolve": presolve},
        )
        if solved.status != SOLVE_ERROR:
            break
    bound = getattr(solved, "mip_dual_bound", None)
    return Optimum(
        makespan_s=None if solved.x is None else float(solved.fun),
        bound_s=None if bound is None else float(bound),
        status=int(solved.status),
        message=str(solved.message),
    )


def _program(work: Workload, machine: Machine) -> tuple[_Program, int]:
    """Return the program, and the number of its variable for the makespan."""
    program, nodes, fetch_s = _Program(), range(work.nodes), machine.fetch_table(work.models)
    most_fetch_s = max(max(row) for row in fetch_s)
    horizon_s = max(work.arrival_s) + sum(work.duration_s) + work.nodes * most_fetch_s + 1.0
    makespan = program.variable(horizon_s)
    taken = [program.variable(horizon_s) for _ in nodes]
    fetch = [program.variable(most_fetch_s) for _ in nodes]
    # an order of all nodes: without it nodes of no length could follow each other in a ring, and none be the first
    place = [program.variable(work.nodes - 1) for _ in nodes]
    window = {
        (node, gpu): program.variable(1, whole=True)
        for node in nodes
        for gpu in range(machine.gpus - work.need[node] + 1)
    }
    arc = {each: program.variable(1, whole=True) for each in _arcs(work.nodes, machine.gpus)}
    for node in nodes:
        program.require([(window[node, gpu], 1.0) for gpu in range(machine.gpus - work.need[node] + 1)], 1.0, 1.0)
        program.require([(taken[node], 1.0)], low=work.arrival_s[int(work.request_of[node])])
        program.require([(makespan, 1.0), (taken[node], -1.0), (fetch[node], -1.0)], low=work.duration_s[node])
        for distance in work.successors[node]:
            terms = [(taken[node + distance], 1.0), (taken[node], -1.0), (fetch[node], -1.0)]
            program.require(terms, low=work.duration_s[node])
            program.require([(place[node + distance], 1.0), (place[node], -1.0)], low=1.0)
    for gpu in range(machine.gpus):
        program.require([(arc[SOURCE, node, gpu], 1.0) for node in nodes], high=1.0)
        for node in nodes:
            used = [
                (window[each], -1.0) for each in window if each[0] == node and 0 <= gpu - each[1] < work.need[node]
            ]
            others = [other for other in nodes if other != node]
            program.require([*((arc[other, node, gpu], 1.0) for other in (*others, SOURCE)), *used], 0.0, 0.0)
            program.require([*((arc[node, other, gpu], 1.0) for other in (*others, SINK)), *used], 0.0, 0.0)
    for (before, node, gpu), follows in arc.items():
        if node == SINK:
            continue
        old = len(work.models) if before == SOURCE else work.model[before]
        cost_s = fetch_s[work.model[node]][old]
        if (node, gpu) in window:  # the fetch is charged by the first GPU of the window
            program.require([(fetch[node], 1.0), (follows, -cost_s), (window[node, gpu], -cost_s)], low=-cost_s)
        if before != SOURCE:
            terms = [(taken[node], 1.0), (taken[before], -1.0), (fetch[before], -1.0), (follows, -horizon_s)]
            program.require(terms, low=work.duration_s[before] - horizon_s)
            terms = [(place[node], 1.0), (place[before], -1.0), (follows, -float(work.nodes))]
            program.require(terms, low=1.0 - work.nodes)
    return program, makespan


def _arcs(nodes: int, gpus: int) -> Iterator[tuple[int, int, int]]:
    """Yield every pair of a node and its successor on a GPU, with the GPU."""
    for gpu in range(gpus):
        for before, node in product((SOURCE, *range(nodes)), (*range(nodes), SINK)):
            if before != node and (before, node) != (SOURCE, SINK):
                yield before, node, gpu
