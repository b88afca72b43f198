"""The simulator of workflows beside SimPy, its time by number of nodes, and the simulated LLM replica beside a loop
over its steps: `python benchmarks/simulator.py`.

    python benchmarks/simulator.py --rounds 5

Both run the same requests under the baseline policy, keep a record of each node execution, and must end at the same
virtual time. There are two programs for SimPy. Both have a process for each node and use Seamark's choice of a GPU,
so the difference is that of the event loops. One queues nodes in a `Resource`, as programs for SimPy do; the other in
a deque of its own, with a bare event for each node, which is the least that SimPy can do. Each run is a process of
its own, on one core; those of a round alternate, and ratios are of processor time within a round, SimPy over Seamark,
without the time to make the work. SimPy comes from PyPI into an environment in the cache folder. The second table is
of Seamark alone: time and memory by number of nodes, full records included.

The next table is of the general event loop, which a machine file needs: the same work on equal GPUs in this loop
(`general`), and on the equal GPUs of a file that may hold several models (`machine`), by processor time over that of
the fast loop in the same round (`--general` prints it alone).

`--command` prints only the table of `bench simulate` on files: time and memory by number of requests.

The last table is of one LLM replica with prompts of 512 tokens and replies of 128, as constants and as means of
drawn lengths, with blocks to spare and with few. The loop of `tests/support/literal_replica.py` takes the same
requests token by token, and must end at the same virtual time. The last ratio is the time of a run with replies twice
as long, over that of the first.
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import astuple, dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("SEAMARK_CACHE") or Path.home() / ".cache" / "seamark")
PIN = "simpy==4.1.2"
LOAD = 0.9
DIAMOND = ((0, 1), (0, 2), (1, 3), (2, 3))


@dataclass(frozen=True)
class Case:
    """GPUs, requests, and nodes of each: one, or a diamond of four."""

    gpus: int
    requests: int
    nodes: int

    @property
    def executions(self) -> int:
        return self.requests * self.nodes


@dataclass(frozen=True)
class LlmCase:
    """Requests to one LLM replica, tokens of a reply, whether lengths are drawn, and blocks of its KV cache."""

    requests: int
    reply: int
    drawn: bool
    blocks: int


PAIRED = (Case(4, 100_000, 1), Case(1_000, 25_000, 4))
LLM = tuple(LlmCase(20_000, 128, drawn, blocks) for drawn in (False, True) for blocks in (30_000, 2_000))
SCALE = tuple(Case(1_000, nodes // 4, 4) for nodes in (10_000, 100_000, 1_000_000))


def load_of(case: Case) -> tuple[list[float], list[float]]:
    """Return arrivals of requests and times of nodes, seeded.

    Arrivals are Poisson, at nine tenths of what the GPUs can do; times are exponential, 10 s on average.
    """
    rng = random.Random(1)
    rate = LOAD * case.gpus / (10.0 * case.nodes)
    arrivals = list(accumulate(rng.expovariate(rate) for _ in range(case.requests)))
    return arrivals, [rng.expovariate(0.1) for _ in range(case.executions)]


def models() -> list[Any]:
    from seamark_simulate.simulation.system import Model

    return [Model(id=f"m{i}", memory_gb=8.0 + 2 * i, gpus_required=1, load_time_s=5.0) for i in range(4)]


def seamark(case: Case, loop: str = "seamark") -> dict[str, float]:
    """Run a case in Seamark, in the fast loop, the general one, or the latter on a machine of a file; the clock
    covers the work made from requests, and the run."""
    from seamark_simulate.simulation.engine import simulate
    from seamark_simulate.simulation.general_loop import run_in
    from seamark_simulate.simulation.machine import GpuKind, Host, Layout, Machine
    from seamark_simulate.simulation.policies.table import POLICIES
    from seamark_simulate.simulation.system import Edge, Request, System, Workflow, WorkflowNode
    from seamark_simulate.simulation.virtual_world import VirtualWorld
    from seamark_simulate.simulation.workload import workload_of

    edges = tuple(Edge(source=f"n{a}", target=f"n{b}") for a, b in DIAMOND) if case.nodes > 1 else ()
    nodes = tuple(WorkflowNode(id=f"n{i}", model=f"m{i}") for i in range(case.nodes))
    system = System(
        models={model.id: model for model in models()},
        workflows={"w": Workflow(id="w", nodes=nodes, edges=edges)},
    )
    arrivals, times = load_of(case)
    requests = [
        Request(
            id=f"r{i}",
            workflow="w",
            at_s=at_s,
            node_execution_times_s={f"n{j}": times[i * case.nodes + j] for j in range(case.nodes)},
        )
        for i, at_s in enumerate(arrivals)
    ]
    before = time.process_time()
    work = workload_of(system, requests, "timestamps")
    made = time.process_time()
    form = POLICIES["baseline"]
    machine = Machine(gpus=case.gpus)
    if loop == "machine":
        host = Host(name="h", kind=GpuKind(name="k", memory_gb=20.0), gpus=case.gpus)
        machine = replace(machine, layout=Layout(hosts=(host,), several_models=True))
    if loop == "seamark":
        schedule = simulate(work, machine, form.make, instants=form.instants)
    else:
        schedule = run_in(VirtualWorld(work), work, machine, form.make, instants=form.instants)
    ended = time.process_time()
    assert len(schedule.node) == case.executions
    return {"work_s": made - before, "run_s": ended - made, "makespan_s": schedule.ran.makespan_s}


def simpy_run(case: Case, *, resource_queue: bool) -> dict[str, float]:
    """Run a case in SimPy: a process for each node, which waits for a GPU and then for its time."""
    import simpy  # type: ignore[import-not-found, unused-ignore]

    from seamark_simulate.simulation.cluster import Cluster
    from seamark_simulate.simulation.machine import Machine

    arrivals, times = load_of(case)
    before = time.process_time()
    env = simpy.Environment()
    cluster = Cluster(Machine(gpus=case.gpus), models())
    queue: deque[tuple[int, Any]] = deque()
    after = [[b for a, b in DIAMOND if a == i] for i in range(case.nodes)] if case.nodes > 1 else [[]]
    before_count = [sum(b == i for _, b in DIAMOND) for i in range(case.nodes)] if case.nodes > 1 else [0]
    left = [count for _ in range(case.requests) for count in before_count]
    records: list[tuple[int, int, int, float, float, float, float]] = []

    def dispatch() -> None:
        while queue and cluster.free:
            node, granted = queue.popleft()
            model = node % case.nodes
            gpu = cluster.best_gpu(model)
            held = cluster.take(gpu, 1, model)
            granted.succeed((gpu, held, cluster.fetch_s[model][held]))

    slots = simpy.Resource(env, capacity=case.gpus)

    def run_queued(node: int) -> Any:
        ready_s, place = env.now, node % case.nodes
        with slots.request() as request:
            yield request
            taken_s = env.now
            gpu = cluster.best_gpu(place)
            held = cluster.take(gpu, 1, place)
            fetch_s = cluster.fetch_s[place][held]
            yield env.timeout(fetch_s + times[node])
            cluster.give_back(gpu, 1, place)
        records.append((node, gpu, held, ready_s, taken_s, taken_s + fetch_s, env.now))
        for target in after[place]:
            child = node - place + target
            left[child] -= 1
            if not left[child]:
                env.process(run_queued(child))

    def run_node(node: int) -> Any:
        ready_s = env.now
        granted = env.event()
        queue.append((node, granted))
        dispatch()
        gpu, held, fetch_s = yield granted
        taken_s = env.now
        yield env.timeout(fetch_s + times[node])
        cluster.give_back(gpu, 1, node % case.nodes)
        records.append((node, gpu, held, ready_s, taken_s, taken_s + fetch_s, env.now))
        place = node % case.nodes
        for target in after[place]:
            child = node - place + target
            left[child] -= 1
            if not left[child]:
                env.process(run_node(child))
        dispatch()

    def arrive() -> Any:
        for number, at_s in enumerate(arrivals):
            yield env.timeout(at_s - env.now)
            env.process(begin(number * case.nodes))

    begin = run_queued if resource_queue else run_node
    env.process(arrive())
    env.run()
    ended = time.process_time()
    assert len(records) == case.executions
    return {"run_s": ended - before, "work_s": 0.0, "makespan_s": max(record[-1] for record in records)}


PROMPT = 512
RATE_RPS = 22.0
LLM_PASSES = 5
"""Runs of Seamark in one process, as one takes but a tenth of a second."""
STEP_COSTS_S = (0.006, 4e-5, 2e-5, 2e-8)
"""Of a step, token of a prompt, request that decodes, token held: about those of 8 billion parameters on one GPU."""


def llm_load(case: LlmCase) -> tuple[list[float], list[int], list[int]]:
    """Return seeded Poisson arrivals, and tokens of prompts and replies: constants, or exponential about them."""
    rng = random.Random(1)
    arrivals = list(accumulate(rng.expovariate(RATE_RPS) for _ in range(case.requests)))
    if not case.drawn:
        return arrivals, [PROMPT] * case.requests, [case.reply] * case.requests
    lengths = [(rng.expovariate(1.0), rng.expovariate(1.0)) for _ in range(case.requests)]
    return arrivals, [1 + int(PROMPT * p) for p, _ in lengths], [1 + int(case.reply * r) for _, r in lengths]


def llm_run(case: LlmCase) -> dict[str, float]:
    """Run a case in Seamark LLM_PASSES times; the clock covers the columns made from plain numbers, and the run."""
    import numpy as np

    from seamark_simulate.simulation.llm.fleet import Fleet, serve_requests
    from seamark_simulate.simulation.llm.replica import LlmReplica, LlmRequests, StepCost

    base_s, prompt_token_s, sequence_s, kv_token_s = STEP_COSTS_S
    cost = StepCost(base_s=base_s, prompt_token_s=prompt_token_s, sequence_s=sequence_s, kv_token_s=kv_token_s)
    fleet = Fleet(replica=LlmReplica(cost=cost, kv_blocks=case.blocks))
    arrivals, prompts, replies = llm_load(case)
    before = time.process_time()
    for _ in range(LLM_PASSES):
        requests = LlmRequests(
            arrival_s=np.array(arrivals), prompt_tokens=np.array(prompts), reply_tokens=np.array(replies)
        )
        served = serve_requests(fleet, requests, np.random.default_rng(1))
    ended = time.process_time()
    return {
        "run_s": (ended - before) / LLM_PASSES,
        "makespan_s": float(served.completed_s.max()),
        "preemptions": int(served.preemptions.sum()),
    }


def llm_literal(case: LlmCase) -> dict[str, float]:
    """Run a case in the loop over all tokens of all steps."""
    import literal_replica  # type: ignore[import-not-found, unused-ignore]

    rows = zip(*llm_load(case), strict=True)
    before = time.process_time()
    requests = [literal_replica.Request(number, *row) for number, row in enumerate(rows)]
    replica = literal_replica.Replica(STEP_COSTS_S, case.blocks, 16, 256, 8_192)
    served = literal_replica.run([replica], requests, lambda request, loads: 0)
    ended = time.process_time()
    return {"run_s": ended - before, "makespan_s": max(each.completed_s for each in served)}


def environment() -> Path:
    """Return the interpreter of an environment with SimPy, and with NumPy for Seamark's GPUs, made on first use."""
    import numpy as np

    pins = (PIN, f"numpy=={np.__version__}")
    folder = CACHE / "benchmarks" / "-".join(pins).replace("==", "-")
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *pins], check=True)
    return python


def measured(python: str | Path, program: str, case: Case | LlmCase) -> dict[str, float]:
    """Run a case in a process of its own."""
    words = [str(python), __file__, "--one", program, *(str(int(each)) for each in astuple(case))]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def paired(case: Case, rounds: int) -> str:
    """Return a row: ratios of processor time, SimPy over Seamark, of both programs."""
    python = environment()
    ratios: dict[str, list[float]] = {"simpy": [], "simpy-bare": []}
    for _ in range(rounds):
        ours = measured(sys.executable, "seamark", case)
        for program, found in ratios.items():
            theirs = measured(python, program, case)
            assert abs(theirs["makespan_s"] - ours["makespan_s"]) < 1e-3, (theirs, ours)
            found.append(theirs["run_s"] / ours["run_s"])
    cells = [
        f"{statistics.median(each):>8.1f}x{f'{min(each):.1f} to {max(each):.1f}':>14}" for each in ratios.values()
    ]
    return f"{case.gpus:>6,}{case.requests:>10,}{case.executions:>12,}{''.join(cells)}"


def general_table(rounds: int) -> None:
    """Print the time of the general loop over that of the fast one."""
    print(f"{'GPUs':>6}{'executions':>12}{'us/node':>9}{'general':>9}{'range':>14}{'machine':>9}{'range':>14}")
    for case in PAIRED:
        fast_us, ratios = [], {"general": list[float](), "machine": list[float]()}
        for _ in range(rounds):
            fast = measured(sys.executable, "seamark", case)
            fast_us.append(fast["run_s"] / case.executions * 1e6)
            for program, found in ratios.items():
                theirs = measured(sys.executable, program, case)
                assert program == "machine" or theirs["makespan_s"] == fast["makespan_s"]
                found.append(theirs["run_s"] / fast["run_s"])
        cells = [f"{statistics.median(r):>8.1f}x{f'{min(r):.1f} to {max(r):.1f}':>14}" for r in ratios.values()]
        row = f"{case.gpus:>6,}{case.executions:>12,}{statistics.median(fast_us):>9.2f}"
        print(f"{row}{''.join(cells)}", flush=True)


def llm_row(case: LlmCase, rounds: int) -> str:
    """Return a row: requests a second, ratios to the literal loop and to replies twice as long, preemptions."""
    rates, over_loop, over_single = [], [], []
    for _ in range(rounds):
        ours = measured(sys.executable, "llm", case)
        longer = measured(sys.executable, "llm", replace(case, reply=2 * case.reply))
        loop = measured(sys.executable, "llm-literal", case)
        assert abs(loop["makespan_s"] / ours["makespan_s"] - 1) < 1e-9, (loop, ours)
        rates.append(case.requests / ours["run_s"])
        over_loop.append(loop["run_s"] / ours["run_s"])
        over_single.append(longer["run_s"] / ours["run_s"])
    cells = [
        f"{statistics.median(rates):>12,.0f}{f'{min(rates):,.0f} to {max(rates):,.0f}':>22}",
        f"{statistics.median(over_loop):>9.1f}x{f'{min(over_loop):.1f} to {max(over_loop):.1f}':>16}",
        f"{statistics.median(over_single):>9.2f}x{f'{min(over_single):.2f} to {max(over_single):.2f}':>16}",
    ]
    lengths = "drawn" if case.drawn else "fixed"
    return f"{lengths:>8}{case.blocks:>8,}{ours['preemptions']:>12,}{''.join(cells)}"


def llm_table(rounds: int) -> None:
    """Print the table of the LLM replica."""
    header = f"{'lengths':>8}{'blocks':>8}{'preemptions':>12}{'requests/s':>12}{'range':>22}"
    print(f"{header}{'loop':>10}{'range':>16}{'256/128':>10}{'range':>16}")
    for case in LLM:
        print(llm_row(case, rounds), flush=True)


def command_table() -> None:
    """Print time and memory of `bench simulate` on files: it reads requests, and writes lines and a log."""
    from datetime import UTC, datetime, timedelta

    print(f"{'executions':>11}{'CPU s':>9}{'MB':>7}")
    begin = datetime(2024, 1, 1, tzinfo=UTC)
    nodes = [{"id": f"n{place}", "model": f"m{place}"} for place in range(4)]
    edges = [{"from": f"n{source}", "to": f"n{target}"} for source, target in DIAMOND]
    kinds = {
        f"m{place}": {"memory_gb": 8 + 2 * place, "gpus_required": 1, "load_time_seconds": 5} for place in range(4)
    }
    for case in SCALE:
        arrivals, times = load_of(case)
        requests = [
            {
                "request_id": f"r{number}",
                "timestamp": (begin + timedelta(seconds=at_s)).isoformat(),
                "workflow_id": "w",
                "node_execution_times": {f"n{place}": times[4 * number + place] for place in range(4)},
            }
            for number, at_s in enumerate(arrivals)
        ]
        with tempfile.TemporaryDirectory() as folder:
            system = {"models": kinds, "workflows": {"w": {"nodes": nodes, "edges": edges}}}
            Path(folder, "system.json").write_text(json.dumps(system))
            Path(folder, "requests.json").write_text(json.dumps({"requests": requests}))
            words = ["simulate", "--gpus", str(case.gpus), "--arrivals", "timestamps"]
            words += ["--config", "system.json", "--requests", "requests.json"]
            command = [sys.executable, "-m", "seamark.cli.main", *words]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"{case.executions:>11,}{cpu_s:>9.1f}{after.ru_maxrss / 1000:>7.0f}", flush=True)


def main(rounds: int) -> None:
    """Print all tables."""
    print(f"{'GPUs':>6}{'requests':>10}{'executions':>12}{'Resource':>9}{'range':>14}{'bare':>9}{'range':>14}")
    for case in PAIRED:
        print(paired(case, rounds), flush=True)
    print(f"\n{'executions':>11}{'us/node':>9}{'of 10^4':>9}{'whole s':>9}{'MB':>7}")
    first_us = None
    for case in SCALE:
        found = [measured(sys.executable, "seamark", case) for _ in range(rounds)]
        run_us = statistics.median(each["run_s"] for each in found) / case.executions * 1e6
        whole_s = statistics.median(each["run_s"] + each["work_s"] for each in found)
        first_us = first_us or run_us
        row = (
            f"{case.executions:>11,}{run_us:>9.2f}{run_us / first_us:>8.2f}x{whole_s:>9.2f}{found[0]['rss_mb']:>7.0f}"
        )
        print(row, flush=True)
    print()
    general_table(rounds)
    print()
    llm_table(rounds)


def one(program: str, sizes: list[int]) -> dict[str, float]:
    """Run one program on one case in this process."""
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "support")]
    if program.startswith("llm"):
        requests, reply, drawn, blocks = sizes
        asked = LlmCase(requests, reply, bool(drawn), blocks)
        return llm_run(asked) if program == "llm" else llm_literal(asked)
    case = Case(*sizes)
    if program in ("seamark", "general", "machine"):
        return seamark(case, program)
    return simpy_run(case, resource_queue=program == "simpy")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--llm", action="store_true", help="only the table of the LLM replica")
    parser.add_argument("--general", action="store_true", help="only the table of the general loop")
    parser.add_argument("--command", action="store_true", help="only the table of `bench simulate` on files")
    parser.add_argument("--one", nargs="+")
    arguments = parser.parse_args()
    if arguments.one:
        result = one(arguments.one[0], [int(size) for size in arguments.one[1:]])
        print(json.dumps(result | {"rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000}))
    elif arguments.general:
        general_table(arguments.rounds)
    elif arguments.command:
        command_table()
    elif arguments.llm:
        llm_table(arguments.rounds)
    else:
        main(arguments.rounds)
