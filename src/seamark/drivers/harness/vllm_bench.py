"""`vllm bench serve` as the load of a trial: command line and results of vLLM 0.32 (`vllm/benchmarks/serve.py`)."""

import math
import time
from pathlib import Path
from typing import Any

from seamark.drivers.harness.tool import NATIVE, NativeRequest, Tool
from seamark.drivers.openai.driver import PATHS, path_of
from seamark.load.driver import whole

BACKENDS = {"completions": "openai", "chat": "openai-chat"}
BURSTINESS = {"constant": math.inf, "poisson": 1.0}
"""Shape of the gaps' distribution by pattern; of a gamma pattern its setting."""


class VllmBench(Tool):
    """Prompts of its `random` data set. Its clock is Python's `perf_counter`, on Linux CLOCK_MONOTONIC."""

    name = "vllm_bench"

    def now_s(self) -> float:
        """Return seconds of CLOCK_MONOTONIC."""
        return time.perf_counter()

    def command(self, work: Path, seed: int) -> list[str]:
        """Return the command line. A closed loop sends everything at once, at most `concurrency` at a time."""
        settings, load = self.settings, self.load
        endpoint = str(settings.get("endpoint") or "completions")
        prompt, tokens = whole(settings, "prompt_len", 128), whole(settings, "gen_tokens", 128)
        prefix = min(whole(settings, "prefix_len", 0), prompt)
        temperature = settings.get("temperature", 0.0)
        paced = ["--request-rate", "inf"]
        if not load.closed:
            burstiness = load.parameters.get("burstiness") or BURSTINESS[load.pattern]
            paced = ["--request-rate", f"{load.parameters['rate_rps']}", "--burstiness", f"{burstiness}"]
        return [
            *(f"{self.root}/bin/vllm", "bench", "serve", "--backend", BACKENDS[endpoint], "--base-url", self.url),
            *("--endpoint", path_of(settings, PATHS[endpoint]), "--model", self.model),
            *("--tokenizer", self.tokenizer(work), "--seed", str(seed), "--dataset-name", "random"),
            *("--random-input-len", str(prompt - prefix), "--random-prefix-len", str(prefix)),
            *("--random-output-len", str(tokens), "--num-prompts", str(self.count)),
            *(*paced, "--max-concurrency", str(load.concurrency)),
            *(() if temperature is None else ("--temperature", str(temperature))),
            *("--save-result", "--save-detailed", "--disable-tqdm", "--result-dir", str(work)),
            *("--result-filename", NATIVE),
        ]

    def requests(self, native: Any) -> list[NativeRequest]:
        """Return the requests of `--save-detailed`: parallel lists, in seconds. `queue_times`, which older versions
        lack, are waits for a connection from the time at which a request was due."""
        names = ("start_times", "ttfts", "itls", "latencies", "output_lens", "errors")
        rows = list(zip(*(native[name] for name in names), strict=True))
        queued_s = native.get("queue_times") or [0.0] * len(rows)
        found = []
        for (sent_s, ttft_s, gaps_s, latency_s, tokens, error), wait_s in zip(rows, queued_s, strict=True):
            failed = str(error) if error or latency_s <= 0 else None  # a status without a phrase leaves no error
            found.append(
                NativeRequest(
                    sent_s=sent_s,
                    due_s=sent_s - max(0.0, wait_s),
                    first_s=sent_s + ttft_s if ttft_s > 0 else None,
                    end_s=sent_s + (latency_s or ttft_s + sum(gaps_s)),
                    tokens=0 if failed is not None else int(tokens or 0),
                    failed=failed,
                )
            )
        return found
