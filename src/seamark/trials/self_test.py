"""Self-test of the load generator on this machine, against a server that records what it really did.

The reference server and its clients share one monotonic clock, so the client's times of each request can be compared
with the server's. They may only be longer, by the client's error and the way through the kernel.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seamark.load.coordinator.coordinator import LoadJob
from seamark.model.sample import MISSING_NS
from seamark.model.service import Value
from seamark.model.site import Pinning
from seamark.platform.pinning import Split, cores_here, split_cores
from seamark.services.ephemeral_server import ephemeral_server
from seamark.testservers.truth import Truth, read_truth
from seamark.trials.measure import MeasuredLoad, measure

TTFT_MS, GAP_MS, TOKENS = 50.0, 10.0, 32
LOADS: Mapping[str, Mapping[str, Value]] = {
    "16 users": {"pattern": "closed", "concurrency": 16},
    "64 users": {"pattern": "closed", "concurrency": 64},
    "50/s": {"pattern": "poisson", "rate_rps": 50.0, "concurrency": 128},
    "1,000/s, one token": {"pattern": "poisson", "rate_rps": 1000.0, "concurrency": 256, "gen_tokens": 1},
}
WELL_P50_MS, WELL_P99_MS = 1.5, 6.0
"""Errors above these are large: other load on the machine, or too few cores for client and server."""


@dataclass(frozen=True, kw_only=True)
class PluginTest:
    """What the self-test of a plugin found: rows of a table, why there are none, and whether all is right. `rows` are
    also those of `--json`, under `name`; None where nothing could be tested."""

    name: str
    title: str
    rows: Sequence[Mapping[str, object]] | None
    right: bool = True
    not_run: str = ""


@dataclass(frozen=True, kw_only=True)
class FigureErrors:
    """Errors of the client's figures of one load, in ms; counts that should be 0; schedule lag in us."""

    load: str
    requests: int
    ttft_p50_ms: float
    ttft_p99_ms: float
    end_p50_ms: float
    end_p99_ms: float
    wrong_tokens: int
    wrong_chunks: int
    failed: int
    lag_p99_us: float | None

    @property
    def right(self) -> bool:
        """Whether every reply was good and every token and chunk was counted."""
        return not (self.failed or self.wrong_tokens or self.wrong_chunks)

    @property
    def well(self) -> bool:
        """Whether the times are close to the true ones as well."""
        return self.right and self.ttft_p50_ms <= WELL_P50_MS and self.ttft_p99_ms <= WELL_P99_MS


def self_test(
    seconds: float = 3.0, loads: Sequence[str] = tuple(LOADS), pinning: Pinning | str = "auto"
) -> list[FigureErrors]:
    """Run each load for `seconds` against a server of its own; return the client's errors. Load and server are pinned
    by the `pinning` of the site; raises UserError if it names CPUs that do not exist."""
    split = split_cores(pinning, workers="wire", shards=1, cores=cores_here())
    return [_one(name, LOADS[name], seconds, split) for name in loads]


def _one(name: str, shape: Mapping[str, Value], seconds: float, split: Split) -> FigureErrors:
    settings: dict[str, Value] = {
        "endpoint": "completions",
        "prompt_len": 16,
        "gen_tokens": TOKENS,
        "warmup_s": 0.0,
        "duration_s": seconds,
        "timeout_s": 30.0,
        **shape,
    }
    with tempfile.TemporaryDirectory(prefix="seamark-self-test-") as folder:
        truth_file = Path(folder) / "truth.jsonl"
        behaviour = ("--truth", truth_file, "--ttft-ms", TTFT_MS, "--gap-ms", GAP_MS)
        with ephemeral_server("seamark.testservers.reference", *behaviour, cores=split.server) as port:
            job = LoadJob(
                driver="seamark.drivers.openai:OpenAi",
                workers="wire",
                settings=settings,
                seed=1,
                data=Path(folder),
                ports={"http": port},
                cores=split.client,
            )
            measured = measure(job, Path(folder) / "parts")
        return _errors(name, measured, read_truth(truth_file))


def _errors(name: str, measured: MeasuredLoad, truth: Truth) -> FigureErrors:
    """Join samples with the server's record: the k-th request sent is the k-th request read. Later ones are the
    driver's own checks of its prompts."""
    samples, chunks = measured.samples(), measured.chunks()
    samples = samples[samples["sent_ns"] != MISSING_NS]  # a request that was due and never sent was not read either
    samples = samples[np.argsort(samples["sent_ns"], kind="stable")]
    failed = int((samples["failure"] != 0).sum()) + max(0, len(samples) - len(truth.number))
    both = min(len(samples), len(truth.number))
    samples, order = samples[:both], np.argsort(truth.read_ns, kind="stable")[:both]
    known = (samples["failure"] == 0) & truth.of_outcome("good")[order]
    mine, order = samples[known], order[known]
    ttft_ms = ((mine["first_ns"] - mine["sent_ns"]) - (truth.first_ns - truth.read_ns)[order]) / 1e6
    end_ms = ((mine["last_ns"] - mine["sent_ns"]) - (truth.last_ns - truth.read_ns)[order]) / 1e6
    events = np.bincount(chunks["index"], weights=chunks["events"], minlength=int(mine["index"].max(initial=0)) + 1)
    lags = [lag.p99 / 1e3 for report in measured.outcome.reports if (lag := report.lag_ns) and lag.p99 is not None]
    return FigureErrors(
        load=name,
        requests=len(mine),
        ttft_p50_ms=float(np.percentile(ttft_ms, 50)),
        ttft_p99_ms=float(np.percentile(ttft_ms, 99)),
        end_p50_ms=float(np.percentile(end_ms, 50)),
        end_p99_ms=float(np.percentile(end_ms, 99)),
        wrong_tokens=int((mine["units"] != truth.tokens[order]).sum()),
        wrong_chunks=int((events[mine["index"]] != truth.chunks[order]).sum()),
        failed=failed,
        lag_p99_us=max(lags, default=None),
    )
