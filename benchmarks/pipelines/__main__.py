"""What a pipeline adds to the work of its stages, beside other ways to run a chain of stages.

    python benchmarks/pipelines --rounds 5 --source ../collocation-benchmark
    python benchmarks/pipelines --only chain,events

- chain: stages that do nothing, one query after another, events recorded; beside a bare chain of threads on
  `queue.SimpleQueue`, and with --source beside the ITU collocation benchmark's own chain, with its log and without
  its tracing.
- peers: the same chain of ten in LangGraph and in Ray's actors, in environments in the cache folder.
- events: what they add. payload: a payload by reference and by copy.
- training: LoRA steps as a pipeline and as a plain loop. memory: a million queries through ten stages.

All take turns within a round, the first query is left out, times are medians over rounds, and differences and ratios
are within a round, with the least and the most.
"""

import argparse
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from subprocess import CalledProcessError

import numpy as np
from chains import bare_us, flow_us
from child import Child

from seamark.services.runtimes.environments import prepare_environment

sys.path.append(str(Path(__file__).parents[1] / "load_engine"))
from environments import ROOT, peer
from machine import CACHE, describe

DEPTHS = (1, 2, 4, 10, 16, 32, 64, 100)
DEPTH = 10
"""Of all chains but those of `chain`."""
PAYLOADS = (0, 1 << 10, 1 << 20, 10 << 20)
STAGES_A_RUN = 20_000
"""Runs of stages in one measurement: the number of queries follows from the depth."""
SLOW_QUERIES = 40
"""Queries where stages copy."""
PEERS = {"langgraph": ("langgraph==1.2.22",), "ray": ("ray==2.60.0",)}
PEER_QUERIES = 500
SOURCE = ("mlflow==3.10.0", "radt==0.2.28")
"""What the other benchmark's chain imports, in the versions of its own environment."""
TRAINING_S = 90.0
RESAMPLES = 10_000
QUERIES = 1_000_000
Rounds = list[list[float]]


def rounds_of(rounds: int, *measures: Callable[[], float]) -> Rounds:
    """Return what each function measured in each round, in turns."""
    found: Rounds = [[] for _ in measures]
    for number in range(rounds):
        for place in range(len(measures)):
            chosen = (place + number) % len(measures)
            found[chosen].append(measures[chosen]())
    return found


def shown(values: Iterable[float], digits: int = 2) -> str:
    """Return a median with the least and the most."""
    some = list(values)
    return f"{median(some):.{digits}f} ({min(some):.{digits}f} to {max(some):.{digits}f})"


def ratio(ours: list[float], theirs: list[float]) -> str:
    return shown(one / other for one, other in zip(ours, theirs, strict=True))


@contextmanager
def or_why(what: str) -> Iterator[None]:
    """Print in one line why something could not be measured."""
    try:
        yield
    except (ChildProcessError, CalledProcessError) as error:
        print(f"{what} is not measured: {error}", flush=True)


def chain(asked: argparse.Namespace) -> None:
    """Print the time of a stage by depth."""
    with ExitStack() as stack:
        source = None
        with or_why("the source"):
            if asked.source is not None:
                python = asked.source_python or peer("collocation-benchmark", SOURCE) / "python"
                child = stack.enter_context(Child(python, "source.py", asked.source.resolve()))
                child.measure(depth=1, queries=1)
                source = child
        print("depth  pipeline us  bare us  ratio                 source us  ratio", flush=True)
        medians = []
        for depth in DEPTHS:
            queries = max(20, STAGES_A_RUN // depth)
            measures = [partial(chain_us, depth, queries) for chain_us in (flow_us, bare_us)]
            measures += [partial(source.measure, depth=depth, queries=queries)] if source else []
            ours, bare, *others = rounds_of(asked.rounds, *measures)
            medians += [(median(ours), median(bare))] if depth >= DEPTH else []
            row = f"{depth:5d}  {median(ours):11.1f}  {median(bare):7.1f}  {ratio(ours, bare):<20}"
            print(row + "".join(f"  {median(other):9.1f}  {ratio(ours, other)}" for other in others), flush=True)
    own, of_bare = (f"{max(times) / min(times) - 1:.0%}" for times in zip(*medians, strict=True))
    print(
        f"depths {DEPTH} to {DEPTHS[-1]}: the most is {own} above the least, of the bare chain {of_bare}", flush=True
    )


def peers(asked: argparse.Namespace) -> None:
    """Print the time of a stage in other frameworks."""
    for name, pins in PEERS.items():
        with or_why(name):
            python = peer(name, pins) / "python"
            with Child(python, "peers.py", name, LANGSMITH_TRACING="false", RAY_USAGE_STATS_ENABLED="0") as child:
                of_child = partial(child.measure, depth=DEPTH, queries=PEER_QUERIES)
                of_child()  # its first run is left out
                ours, theirs = rounds_of(asked.rounds, partial(flow_us, DEPTH, PEER_QUERIES), of_child)
            times = f"{median(theirs):.0f} us, {ratio(theirs, ours)} times the pipeline's {median(ours):.1f} us"
            print(f"{pins[0]}: {times}", flush=True)


def events(asked: argparse.Namespace) -> None:
    """Print what events add to a stage."""
    chain_us = partial(flow_us, DEPTH, STAGES_A_RUN // DEPTH)
    on, off = rounds_of(asked.rounds, chain_us, partial(chain_us, events=False))
    added = (more - less for more, less in zip(on, off, strict=True))
    print(f"events add {shown(added, 1)} us to a stage of {median(off):.1f} us")


def payload(asked: argparse.Namespace) -> None:
    """Print the time of a stage by payload, and what the largest adds."""
    print(f"us a stage with {', '.join(f'{size:,}' for size in PAYLOADS)} bytes, and what the most add")
    for way, queries in (("by reference", STAGES_A_RUN // DEPTH), ("by copy", SLOW_QUERIES)):
        options = [{"payload": size, "copied": way == "by copy"} for size in PAYLOADS]
        found = rounds_of(asked.rounds, *(partial(flow_us, DEPTH, queries, **option) for option in options))
        added = [most - none for most, none in zip(found[-1], found[0], strict=True)]
        per_mb = shown((more / PAYLOADS[-1] * 1e6 for more in added), 1)
        row = ", ".join(f"{median(times):.1f}" for times in found)
        print(f"{way}: {row}; {shown(added, 1)} us, {per_mb} us per MB", flush=True)


def training(asked: argparse.Namespace) -> None:
    """Print by how much a training step is slower in a pipeline.

    Stages are threads: glibc may give one an arena that returns large tensors to the system after each step, so that
    the next one takes their pages again. With one arena for all threads it does not.
    """
    python = prepare_environment("pipelines", ROOT / "envs", CACHE.parent / "envs") / "bin" / "python"
    variables = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    for name, arenas in (("one arena", {"MALLOC_ARENA_MAX": "1"}), ("arenas of threads", {})):
        with Child(python, "training.py", **variables, **arenas) as child:
            rounds = [np.array(child.measure(seconds=TRAINING_S / asked.rounds)) for _ in range(asked.rounds)]
        rng = np.random.default_rng(1)
        for number, clock in enumerate(("wall", "CPU")):
            own = [blocks[..., number] for blocks in rounds]  # shape (blocks, 2 arms, 2 steps), in ns
            blocks = np.concatenate(own)
            drawn = [slower(blocks[rng.integers(0, len(blocks), len(blocks))]) for _ in range(RESAMPLES)]
            low, high = np.percentile(drawn, [2.5, 97.5])
            by_round = ", ".join(f"{slower(one):+.2%}" for one in own)
            loop = f"the loop's {np.median(blocks[:, 1]) / 1e6:.1f} ms, {2 * len(blocks)} steps each"
            print(
                f"{name}, {clock} time: {slower(blocks):+.2%} [{low:+.2%}, {high:+.2%}] of {loop}; by round", end=" "
            )
            print(by_round, flush=True)


def slower(blocks: np.ndarray) -> float:
    """Return the ratio of the medians of both arms, less 1."""
    return float(np.median(blocks[:, 0]) / np.median(blocks[:, 1]) - 1)


def memory(asked: argparse.Namespace) -> None:
    """Print the resident memory of many queries."""
    with Child(sys.executable, "chains.py") as child:
        base, end, peak = child.measure(depth=DEPTH, queries=QUERIES)
    print(f"{QUERIES:,} queries: {end - base:+.1f} MB at the end, {peak - base:+.1f} at the peak, over {base:.0f} MB")


PARTS = {part.__name__: part for part in (chain, peers, events, payload, training, memory)}


def main() -> None:
    """Measure the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between them")
    parser.add_argument("--source", type=Path, help="a checkout of the ITU collocation benchmark")
    parser.add_argument("--source-python", type=Path, help="one with what that imports; default: one is made")
    asked = parser.parse_args()
    names = asked.only.split(",")
    if unknown := set(names) - PARTS.keys():
        parser.error(f"--only: {', '.join(sorted(unknown))}: allowed are {', '.join(PARTS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that children end with us
    print(describe())
    for name in names:
        print(f"\n{name}", flush=True)
        with or_why(name):
            PARTS[name](asked)


if __name__ == "__main__":
    main()
