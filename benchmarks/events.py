"""Cost of events: time to record one, in pairs with not recording; memory of the steps of a trial with millions.

`python benchmarks/events.py [--pairs 9] [--events 5000000]`. Each step runs in a process of its own.
"""

import argparse
import multiprocessing
import resource
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns

LOOP = 200_000
STAGES = 5
EVENTS_OF_A_REQUEST = 10


def recorded_us(folder: Path, *, record: bool) -> float:
    """Return the time of one turn of a loop that records an event in each turn, or none, in us."""
    from seamark.load.workers.events import EventFile
    from seamark.model.sample import EventKind

    with EventFile(folder / "w.events", worker=0) as file:
        file.started(lambda: 1)()
        add = file.track().add
        began_ns = monotonic_ns()
        if record:
            for number in range(LOOP):
                add(number, 0, EventKind.RUN, began_ns, monotonic_ns())
        else:
            for _ in range(LOOP):
                monotonic_ns()
        took_ns = monotonic_ns() - began_ns
    return took_ns / LOOP / 1e3


def write(folder: Path, count: int) -> None:
    """Record events as a worker does, and its samples."""
    from seamark.load.workers.events import EventFile
    from seamark.load.workers.records import Recorder, Segment
    from seamark.model.sample import MISSING_NS, EventKind

    with EventFile(folder / "w.events", worker=0) as file, Segment(folder / "w.samples") as segment:
        file.started(lambda: 0)()
        track, samples = file.track(), Recorder(segment)
        for query in range(count // EVENTS_OF_A_REQUEST):
            at = 1_000_000 * query
            for stage in range(STAGES):
                track.add(query, stage, EventKind.WAIT, at, at + 100)
                track.add(query, stage, EventKind.RUN, at + 100, at := at + 100_000)
            samples.add(query, at - 500_000, at - 500_000, MISSING_NS, MISSING_NS, at, 1, 0, False, 0, 0, 0, 0, 0, 0)
        file.flush()
        samples.flush()


def gather(folder: Path, count: int) -> None:
    """Write events.parquet and samples.parquet."""
    from seamark.load.workers.segments import gather_events, gather_samples

    names = [f"stage {number}" for number in range(STAGES)]
    assert gather_events([folder / "w.events"], folder / "events.parquet", names) == count
    gather_samples([folder / "w.samples"], folder / "samples.parquet", {})


def derive(folder: Path, count: int) -> None:
    """Derive the figures of the stages."""
    from seamark.analysis.metrics.samples import open_samples
    from seamark.analysis.metrics.stages import read_stages
    from seamark.analysis.metrics.window import Window
    from seamark.analysis.metrics.window_counts import count_window

    samples, window = open_samples(folder / "samples.parquet"), Window(start_ns=0, end_ns=1 << 62)
    found = read_stages(folder / "events.parquet", samples, window, count_window(samples, window).response)
    assert found is not None
    assert found.requests == count // EVENTS_OF_A_REQUEST


def export(folder: Path, count: int) -> None:
    """Write the trace for Perfetto."""
    from seamark.analysis.perfetto import write_perfetto

    assert write_perfetto(folder / "events.parquet", folder / "trace.json.gz") == count


def measured(step: Callable[[Path, int], None], folder: Path, count: int) -> tuple[float, float]:
    """Run a step in a new process; return its wall time in s and its largest resident size in MB."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(step, folder, count, theirs))
    process.start()
    wall_s, rss_mb = ours.recv()
    process.join()
    return wall_s, rss_mb


def _run(
    step: Callable[[Path, int], None], folder: Path, count: int, pipe: "multiprocessing.connection.Connection"
) -> None:
    began_ns = monotonic_ns()
    step(folder, count)
    pipe.send(((monotonic_ns() - began_ns) / 1e9, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3))


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--events", type=int, default=5_000_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        costs = []
        for number in range(asked.pairs):
            turns = {
                record: recorded_us(folder, record=record)
                for record in ((True, False) if number % 2 else (False, True))
            }
            costs.append(turns[True] - turns[False])
        print(f"recording one event: {statistics.median(costs):.2f} us ({min(costs):.2f} to {max(costs):.2f})")
        print(f"{asked.events:,} events{'':<12}{'wall s':>10}{'largest RSS MB':>16}")
        for step in (write, gather, derive, export):
            wall_s, rss_mb = measured(step, folder, asked.events)
            print(f"{step.__name__:<26}{wall_s:>10.1f}{rss_mb:>16.0f}")


if __name__ == "__main__":
    main()
