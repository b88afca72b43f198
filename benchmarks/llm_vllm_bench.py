"""Language model: Seamark against `vllm bench serve`, on one server with the same prompts and arrivals.

    python benchmarks/llm_vllm_bench.py --rounds 3

The server is vLLM's CPU build with the tiny model, started by the supervisor as in a trial. Prompts are those of the
openai driver, written out for vLLM. Arrivals are vLLM's, Poisson, burstiness 1: a separate first run, which also
warms the server, yields the times, and Seamark replays them as a trace. In a closed loop both have the same users.
Both take turns and count by the server's usage, so numbers of tokens must be equal; they are printed.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seamark.config.read import read_services
from seamark.drivers.openai import OpenAi
from seamark.load.coordinator.coordinator import LoadJob, run_load
from seamark.load.workers.records import read_segments
from seamark.model.digest import seed_for
from seamark.model.sample import CHUNK
from seamark.model.service import Value
from seamark.model.site import Paths, Site
from seamark.model.trial import Deployment
from seamark.services.supervisor.deployment import renew, serve, stop
from seamark.storage.codec import encode
from seamark.storage.paths import DeploymentFolder

sys.path.append(str(Path(__file__).with_name("load_engine")))
from environments import QUIET, ROOT, for_vllm, vllm
from machine import describe

CACHE = Path(os.environ.get("SEAMARK_CACHE") or Path.home() / ".cache" / "seamark")
SEED = 1
AGREE = 0.05
SERVER: Mapping[str, Value] = {
    "model": "tiny",
    "max_model_len": 1024,
    "max_num_seqs": 64,
    "enforce_eager": True,
    "enable_prefix_caching": False,
}
WHY = {
    "TTFT": "vLLM's clock starts before its client has encoded the request and taken a connection, and stops when it "
    "has parsed the event and its turn came; ours starts at the write and stops at the read",
    "TPOT": "the same definition, (last content - first content) / (tokens - 1): what differs is when each client's "
    "stamps are taken, as of TTFT",
    "ITL": "both are times between events, not tokens: events that one read brings are 0 apart for us, and as far "
    "apart as their parsing for vLLM, so quantiles of few gaps differ",
    "throughput": "vLLM divides by the time from before its first task to after its last; we by that from the first "
    "send to the last content",
}


@dataclass(frozen=True, kw_only=True)
class Load:
    """`users` in a closed loop, or `rate` requests/s as vLLM draws them."""

    requests: int
    users: int | None = None
    rate: float | None = None

    def __str__(self) -> str:
        return f"{self.users} users" if self.users else f"Poisson, {self.rate:g}/s"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Result of a client: times in s, of each request or, for `itl_s`, of each gap; `starts_s` of its sends."""

    starts_s: np.ndarray
    ttft_s: np.ndarray
    tpot_s: np.ndarray
    itl_s: np.ndarray
    tokens: int
    wall_s: float

    def figures(self) -> dict[str, float]:
        """Return the compared metrics; times in ms."""
        found = {}
        for name, times_s in (("TTFT", self.ttft_s), ("TPOT", self.tpot_s), ("ITL", self.itl_s)):
            found[f"{name} mean, ms"] = float(times_s.mean()) * 1e3
            for share in (50, 99):
                found[f"{name} p{share}, ms"] = float(np.percentile(times_s, share)) * 1e3
        found["throughput, tokens/s"] = self.tokens / self.wall_s
        found["throughput, requests/s"] = len(self.ttft_s) / self.wall_s
        return found


def main() -> None:
    """Measure both loads in turns and print figures and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--users", type=int, default=8)
    parser.add_argument("--rate", type=float, default=6.0, help="requests/s")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--output-tokens", type=int, default=32)
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server ends with us
    print(describe(), flush=True)
    lengths: dict[str, Value] = {"prompt_len": asked.prompt_tokens, "gen_tokens": asked.output_tokens}
    loads = (Load(requests=asked.requests, users=asked.users), Load(requests=asked.requests, rate=asked.rate))
    with tempfile.TemporaryDirectory(prefix="seamark-llm-") as name, served(Path(name)) as endpoint:
        phases = endpoint["phases"]
        print(f"vLLM {endpoint['service'].version} answers {phases['start_s']:.0f} s after its command", flush=True)
        for load in loads:
            compare(endpoint, load, lengths, asked.rounds, Path(name))


def compare(endpoint: dict[str, Any], load: Load, lengths: dict[str, Value], rounds: int, root: Path) -> None:
    """Let both clients measure one load in turns; print the table."""
    prompts = root / "prompts.jsonl"
    write_prompts(endpoint, lengths, load.requests, prompts)
    first = by_vllm(endpoint, load, lengths, prompts, root)
    trace = root / "trace.jsonl"
    starts_s = np.sort(first.starts_s) - first.starts_s.min()
    trace.write_text("".join(json.dumps({"at_s": round(float(at_s), 6)}) + "\n" for at_s in starts_s))
    seen: dict[str, list[Seen]] = {"vllm": [], "seamark": []}
    for number in range(rounds):
        for tool in ("vllm", "seamark") if number % 2 else ("seamark", "vllm"):
            endpoint["renew"]()
            if tool == "vllm":
                seen[tool].append(by_vllm(endpoint, load, lengths, prompts, root))
            else:
                seen[tool].append(by_seamark(endpoint, load, lengths, trace, root))
    show(load, lengths, seen)


def show(load: Load, lengths: Mapping[str, Value], seen: Mapping[str, Sequence[Seen]]) -> None:
    """Print medians over the rounds, their ratio, and the reason for each difference."""
    figures = {tool: [one.figures() for one in runs] for tool, runs in seen.items()}
    counted = {tool: [one.tokens for one in runs] for tool, runs in seen.items()}
    print(
        f"\n{load}, {load.requests} requests of {lengths['prompt_len']} + {lengths['gen_tokens']} tokens; "
        f"medians of {len(seen['seamark'])} interleaved rounds; tokens: {counted}"
    )
    print(f"{'':<24}{'vllm bench':>12}{'Seamark':>12}{'ratio':>8}  within {AGREE:.0%}  by round: least, most")
    apart = set()
    for name in figures["vllm"][0]:
        theirs, ours = ([run[name] for run in figures[tool]] for tool in ("vllm", "seamark"))
        ratios = [one / other if other else float("nan") for one, other in zip(ours, theirs, strict=True)]
        ratio = statistics.median(ours) / statistics.median(theirs)
        agrees = abs(ratio - 1) <= AGREE
        if not agrees:
            apart.add(name.split()[0].rstrip(","))
        print(
            f"{name:<24}{statistics.median(theirs):>12.3f}{statistics.median(ours):>12.3f}{ratio:>8.3f}"
            f"  {'yes' if agrees else 'no':<10} {min(ratios):.3f}, {max(ratios):.3f}"
        )
    for name in sorted(apart):
        print(f"{name}: {WHY[name]}.", flush=True)


@contextmanager
def served(root: Path) -> Iterator[dict[str, Any]]:
    """Serve the tiny model by the recipe of vLLM; give the endpoint with `settings`, `service` and `renew` added."""
    service = read_services(ROOT / "config" / "services")["vllm"]
    settings = {setting.name: setting.default for setting in service.settings} | dict(SERVER)
    paths = Paths(scratch=str(root / "scratch"), environments=str(CACHE / "envs"))
    site = Site(name="here", summary="", paths=paths)
    deployment = Deployment(id="vllm", service="vllm", settings=settings, nodes=1, gpus=0, cpus_per_task=1, mem_gb=1)
    folder = DeploymentFolder(root=root / "results" / "deployments" / "vllm")
    endpoint = encode(serve(deployment, service, site, folder, scenario="compare", seed=0, locks=ROOT / "envs"))
    try:
        if endpoint["status"] != "ok":
            sys.exit(f"vLLM did not start: {endpoint['reason']} {' | '.join(endpoint.get('log_tail', []))}")
        yield {**endpoint, "settings": settings, "service": service, "renew": lambda: renew(folder)}
    finally:
        stop(folder)


def job_of(endpoint: Mapping[str, Any], settings: Mapping[str, Value]) -> LoadJob:
    """Return a load on the server with the openai driver, its prompts texts."""
    always: dict[str, Value] = {"warmup_s": 0.0, "duration_s": 600.0, "timeout_s": 120.0, "prompt_form": "text"}
    return LoadJob(
        driver=endpoint["service"].driver,
        workers="wire",
        settings={**endpoint["settings"], **always, **settings},
        seed=SEED,
        data=Path(endpoint["data"]),
        host=endpoint["host"],
        ports=endpoint["ports"],
    )


def write_prompts(endpoint: Mapping[str, Any], lengths: Mapping[str, Value], requests: int, file: Path) -> None:
    """Write the prompts that Seamark will send, in their order, as vLLM reads them."""
    job = job_of(endpoint, lengths)
    driver = OpenAi(job.target())
    bodies = driver.bodies(driver.body_count, seed_for(SEED, "bodies"))
    with file.open("w") as lines:
        for number in range(requests):
            (prompt,) = bodies[number % len(bodies)].content.prompts
            lines.write(json.dumps({"prompt": prompt}) + "\n")


def by_seamark(
    endpoint: Mapping[str, Any], load: Load, lengths: Mapping[str, Value], trace: Path, root: Path
) -> Seen:
    """Run the load as a trial does; derive the metrics of vLLM's benchmark from the raw records."""
    settings = {**lengths, "requests": load.requests, "concurrency": load.users or load.requests}
    if load.rate is not None:
        settings |= {"pattern": "trace", "trace": str(trace)}
    with tempfile.TemporaryDirectory(dir=root) as name:
        outcome = run_load(job_of(endpoint, settings), None, Path(name), endpoint["renew"])
        samples, chunks = read_segments(outcome.segments), read_segments(outcome.chunks, CHUNK)
    failed = int((samples["failure"] != 0).sum())
    if failed:
        sys.exit(f"Seamark: {failed} requests failed")
    samples = samples[np.argsort(samples["index"])]
    chunks = chunks[np.lexsort((chunks["at_ns"], chunks["index"]))]
    begins = np.flatnonzero(np.diff(chunks["index"], prepend=-1))
    ends = np.append(begins[1:], len(chunks)) - 1
    last_ns = chunks["at_ns"][ends]
    gaps_ns = np.delete(np.diff(chunks["at_ns"]), begins[1:] - 1)
    together = int((chunks["events"] - 1).sum())
    return Seen(
        starts_s=samples["sent_ns"] / 1e9,
        ttft_s=(samples["first_ns"] - samples["sent_ns"]) / 1e9,
        tpot_s=(last_ns - samples["first_ns"]) / np.maximum(1, samples["units"] - 1) / 1e9,
        itl_s=np.concatenate([gaps_ns / 1e9, np.zeros(together)]),
        tokens=int(samples["units"].sum()),
        wall_s=float(last_ns.max() - samples["sent_ns"].min()) / 1e9,
    )


def by_vllm(endpoint: Mapping[str, Any], load: Load, lengths: Mapping[str, Value], prompts: Path, root: Path) -> Seen:
    """Run `vllm bench serve`; read its records of each request."""
    paced = ["--max-concurrency", load.users] if load.users else ["--request-rate", load.rate, "--burstiness", 1]
    command = [
        *(vllm() / "vllm", "bench", "serve", "--backend", "openai", "--endpoint", "/v1/completions"),
        *("--base-url", f"http://{endpoint['host']}:{endpoint['ports']['http']}", "--model", "tiny"),
        *(
            "--tokenizer",
            Path(endpoint["data"]) / "tiny",
            "--dataset-name",
            "custom",
            "--dataset-path",
            prompts,
            "--seed",
            SEED,
        ),
        *("--custom-output-len", lengths["gen_tokens"], "--skip-chat-template", "--disable-shuffle"),
        *("--num-prompts", load.requests, *paced, "--ignore-eos", "--temperature", 0, "--disable-tqdm"),
        *("--save-result", "--save-detailed", "--result-dir", root, "--result-filename", "vllm.json"),
    ]
    more = {"PYTHONPATH": str(for_vllm()), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.Popen(
        list(map(str, command)),
        env={**os.environ, **QUIET, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    while True:
        endpoint["renew"]()
        try:
            text, _ = process.communicate(timeout=5)
            break
        except subprocess.TimeoutExpired:
            continue
    if process.returncode != 0:
        sys.exit(f"vllm bench serve ended with {process.returncode}: {text[-600:]}")
    said = json.loads((root / "vllm.json").read_text())
    if said["failed"]:
        sys.exit(f"vllm bench serve: {said['failed']} requests failed")
    ttft_s, latency_s, tokens = (np.array(said[name]) for name in ("ttfts", "latencies", "output_lens"))
    return Seen(
        starts_s=np.array(said["start_times"]),
        ttft_s=ttft_s,
        tpot_s=(latency_s - ttft_s) / np.maximum(1, tokens - 1),
        itl_s=np.array([gap_s for gaps_s in said["itls"] for gap_s in gaps_s]),
        tokens=int(tokens.sum()),
        wall_s=float(said["duration"]),
    )


if __name__ == "__main__":
    main()
