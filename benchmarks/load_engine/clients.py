"""The clients: how each receives its load and reports its requests. Versions are in environments.py."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from environments import QUIET, for_vllm, peer, tokenizer, vllm
from load import ClientError, Load, Seen
from ours import CONNECTIONS

from seamark.drivers.openai.prompts import WORDS

HERE = Path(__file__).parent
PROMPTS = 1000


class Client(Protocol):
    """One client. `command` may write files into `folder`, where its reports go too; `said` is what a run left."""

    name: str

    def command(self, load: Load, port: int, folder: Path) -> list[str | Path]:
        """Return the command that runs a load."""

    def environment(self) -> Mapping[str, str]:
        """Return the additional environment variables of the client."""

    def seen(self, folder: Path) -> Seen:
        """Return its report of each request. Raises ClientError if there is none."""


class Seamark:
    """Seamark's engine with the openai driver: tokens by usage, a record of each request and of each read."""

    name = "seamark"

    def __init__(self, *, read: bool = True) -> None:
        self.read = read

    def command(self, load: Load, port: int, folder: Path) -> list[str | Path]:
        settings: dict[str, Any] = {
            "endpoint": "completions",
            "model": "known",
            "prompt_len": load.prompt_tokens,
            "gen_tokens": load.tokens,
            "requests": load.requests,
            "concurrency": load.concurrency if load.rate is None else CONNECTIONS,
        }
        if load.rate is not None:
            settings |= {"pattern": "constant" if load.constant else "poisson", "rate_rps": load.rate}
        file = folder / "load.json"
        file.write_text(json.dumps({"settings": settings, "port": port, "read": self.read}))
        return [sys.executable, HERE / "ours.py", file]

    def environment(self) -> Mapping[str, str]:
        return {}

    def said(self, folder: Path) -> dict[str, Any]:
        """Return the run's own report."""
        said: dict[str, Any] = json.loads((folder / "said.json").read_text())
        return said

    def seen(self, folder: Path) -> Seen:
        samples = np.load(folder / "samples.npy")
        samples = samples[samples["failure"] == 0]
        rest = np.maximum(1, samples["units"] - 1)
        return Seen(
            ttft_s=(samples["first_ns"] - samples["sent_ns"]) / 1e9,
            tpot_s=(samples["last_ns"] - samples["first_ns"]) / rest / 1e9,
            lag_s=(samples["sent_ns"] - samples["due_ns"]) / 1e9,
        )


class Vllm:
    """`vllm bench serve` in the version of the service."""

    name = "vllm bench serve"

    def command(self, load: Load, port: int, folder: Path) -> list[str | Path]:
        data = folder / "prompts.jsonl"
        rng = np.random.default_rng(1)
        with data.open("w") as file:
            for _ in range(min(PROMPTS, load.requests)):
                prompt = " ".join(rng.choice(WORDS, load.prompt_tokens))
                file.write(json.dumps({"prompt": prompt}) + "\n")
        paced: list[str] = ["--max-concurrency", str(load.concurrency)]
        if load.rate is not None:
            paced = ["--request-rate", str(load.rate), "--burstiness", "inf" if load.constant else "1"]
        return [
            *(vllm() / "vllm", "bench", "serve", "--backend", "openai", "--base-url", f"http://127.0.0.1:{port}"),
            *("--endpoint", "/v1/completions", "--model", "known", "--tokenizer", tokenizer(), "--seed", "1"),
            *("--dataset-name", "custom", "--dataset-path", data, "--custom-output-len", str(load.tokens)),
            *("--skip-chat-template", "--disable-shuffle", "--num-prompts", str(load.requests), *paced),
            *("--ignore-eos", "--temperature", "0", "--save-result", "--save-detailed", "--disable-tqdm"),
            *("--result-dir", folder, "--result-filename", "vllm.json"),
        ]

    def environment(self) -> Mapping[str, str]:
        return {**QUIET, "PYTHONPATH": str(for_vllm()), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}

    def seen(self, folder: Path) -> Seen:
        said = json.loads((folder / "vllm.json").read_text())
        good = np.array([not error for error in said["errors"]])
        order = np.argsort(np.array(said["start_times"])[good], kind="stable")
        ttft_s, latency_s, tokens = (np.array(said[name])[good] for name in ("ttfts", "latencies", "output_lens"))
        return Seen(ttft_s=ttft_s[order], tpot_s=((latency_s - ttft_s) / np.maximum(1, tokens - 1))[order])


class AiPerf:
    """NVIDIA's aiperf, tokens counted by the server's usage."""

    name = "aiperf"

    def command(self, load: Load, port: int, folder: Path) -> list[str | Path]:
        paced: list[str] = ["--concurrency", str(load.concurrency)]
        if load.rate is not None:
            pattern = "constant" if load.constant else "poisson"
            paced = ["--request-rate", str(load.rate), "--arrival-pattern", pattern]
        return [
            *(peer("aiperf") / "aiperf", "profile", "--model", "known", "--url", f"http://127.0.0.1:{port}"),
            *("--endpoint-type", "completions", "--streaming", "--request-count", str(load.requests), *paced),
            *("--synthetic-input-tokens-mean", str(load.prompt_tokens), "--synthetic-input-tokens-stddev", "0"),
            *("--output-tokens-mean", str(load.tokens), "--extra-inputs", "ignore_eos:true", "--random-seed", "1"),
            *("--tokenizer", tokenizer(), "--use-server-token-count", "--artifact-dir", folder / "aiperf"),
            *("--ui", "none", "--no-server-metrics", "--no-gpu-telemetry"),
        ]

    def environment(self) -> Mapping[str, str]:
        return QUIET

    def seen(self, folder: Path) -> Seen:
        with (folder / "aiperf" / "profile_export.jsonl").open() as file:
            rows = [json.loads(line) for line in file]
        rows = [row for row in rows if "time_to_first_token" in row["metrics"]]
        rows.sort(key=lambda row: int(row["metadata"]["request_start_ns"]))

        def column(name: str) -> np.ndarray:
            return np.array([row["metrics"].get(name, {"value": np.nan})["value"] / 1e3 for row in rows])

        stamps = [(row["metadata"]["request_start_ns"], row["metadata"]["credit_issued_ns"]) for row in rows]
        return Seen(
            ttft_s=column("time_to_first_token"),
            tpot_s=column("inter_token_latency"),
            lag_s=np.array([(started - credited) / 1e9 for started, credited in stamps]),
        )


class GuideLlm:
    """guidellm with completions."""

    name = "guidellm"

    def command(self, load: Load, port: int, folder: Path) -> list[str | Path]:
        profile = f"kind=concurrent,streams={load.concurrency}"
        if load.rate is not None:
            profile = f"kind={'constant' if load.constant else 'poisson'},rate={load.rate}"
        backend = f"kind=openai_http,target=http://127.0.0.1:{port},model=known,request_format=/v1/completions"
        return [
            *(peer("guidellm") / "guidellm", "run", "--backend", backend, "--profile", profile),
            *("--constraint", f"kind=max_requests,count={load.requests}"),
            *("--tokenizer", f"kind=huggingface_auto,model={tokenizer()}"),
            *("--data", f"kind=synthetic_text,prompt_tokens={load.prompt_tokens},output_tokens={load.tokens}"),
            *("--output", f"kind=json,path={folder / 'guidellm.json'}", "--disable-console"),
        ]

    def environment(self) -> Mapping[str, str]:
        return {**QUIET, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}

    def seen(self, folder: Path) -> Seen:
        (one,) = json.loads((folder / "guidellm.json").read_text())["benchmarks"]
        rows = sorted(one["requests"]["successful"], key=lambda row: float(row["request_start_time"]))
        if not rows:
            raise ClientError("no request of it was good")

        def column(name: str) -> np.ndarray:
            return np.array([np.nan if row[name] is None else row[name] / 1e3 for row in rows])

        timings = [row["info"]["timings"] for row in rows]
        return Seen(
            ttft_s=column("time_to_first_token_ms"),
            tpot_s=column("inter_token_latency_ms"),
            lag_s=np.array([each["request_start"] - each["targeted_start"] for each in timings]),
        )


class AioHttp:
    """aiohttp on uvloop that only counts the ends of events: neither JSON nor records."""

    name = "aiohttp, counting"

    def command(self, load: Load, port: int, folder: Path) -> list[str | Path]:
        if load.rate is not None:
            raise ClientError("closed loop only")
        url = f"http://127.0.0.1:{port}/v1/completions"
        words = [url, load.concurrency, load.requests, load.tokens, load.prompt_tokens]
        return [peer("aiohttp") / "python", HERE / "aiohttp_client.py", *map(str, words)]

    def environment(self) -> Mapping[str, str]:
        return {}

    def seen(self, folder: Path) -> Seen:
        raise ClientError("it keeps no times")


PEERS: tuple[Client, ...] = (Vllm(), AiPerf(), GuideLlm())
EVERY: Mapping[str, Client] = {each.name.split()[0].rstrip(","): each for each in (Seamark(), *PEERS, AioHttp())}


def environment_of(client: Client) -> dict[str, str]:
    """Return all variables of a client's process."""
    return {**os.environ, **client.environment()}
