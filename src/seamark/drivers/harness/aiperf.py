"""AIPerf as the load of a trial: command line and records of aiperf 0.13."""

import json
import time
from pathlib import Path
from typing import Any, ClassVar

from seamark.drivers.harness.tool import PROMPTS, NativeRequest, Tool, write_words
from seamark.load.driver import Target

RECORDS = "profile_export.jsonl"
"""Its results: a request a line."""
OWN_ERRORS = ("CreditProcessingError", "RequestCancellationError")
"""Errors of AIPerf itself that carry a code as if a server had sent it."""


class AiPerf(Tool):
    """Prompts that Seamark draws, as a file. Its clock is Python's `time_ns`."""

    name = "aiperf"
    keeps = (RECORDS, "profile_export_aiperf.json")
    variables: ClassVar = {
        # else the prompts of each run stay in ~/.cache and /tmp
        "AIPERF_DATASET_MMAP_CACHE_ENABLED": "false",
        "AIPERF_DATASET_MMAP_BASE_PATH": "{work}",
        "HF_HUB_OFFLINE": "",  # offline, it refuses a folder as the tokenizer
    }

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.begun_ns = time.time_ns()  # times count from here: seconds since 1970 have steps of 0.24 us as a float

    def now_s(self) -> float:
        """Return seconds since `begun_ns`."""
        return (time.time_ns() - self.begun_ns) / 1e9

    def command(self, work: Path, seed: int) -> list[str]:
        """Return the command line, after writing the prompts."""
        settings, load = self.settings, self.load
        write_words(work / "tokenizer")  # it wants one, and counts nothing with it
        self.write_prompts(work, seed, prompt="text", tokens="output_length")
        body: dict[str, Any] = {"ignore_eos": True}
        if (temperature := settings.get("temperature", 0.0)) is not None:
            body["temperature"] = temperature
        paced = ["--concurrency", str(load.concurrency)]
        if not load.closed:
            paced += ["--request-rate", str(load.parameters["rate_rps"]), "--arrival-pattern", load.pattern]
        return [
            *(f"{self.root}/bin/aiperf", "profile", "--model", self.model, "--url", self.url),
            *("--endpoint-type", str(settings.get("endpoint") or "completions"), "--streaming"),
            *("--request-count", str(self.count), *paced, "--request-timeout-seconds", str(load.timeout_s)),
            *("--input-file", str(work / PROMPTS), "--custom-dataset-type", "single_turn"),
            *("--dataset-sampling-strategy", "sequential", "--random-seed", str(seed)),
            *("--tokenizer", str(work / "tokenizer"), "--use-server-token-count", "--use-legacy-max-tokens"),
            *("--extra-inputs", json.dumps(body), "--artifact-dir", str(work)),
            *("--ui", "none", "--no-server-metrics", "--no-gpu-telemetry"),
        ]

    def read(self, work: Path) -> list[Any] | None:
        """Return the records, without a last line that was not finished."""
        path = work / RECORDS
        if not path.exists():
            return None
        # not by splitlines: text may contain U+2028
        return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]

    def requests(self, native: Any) -> list[NativeRequest]:
        """Return the requests of its records.

        AIPerf does not say when a request was due, only when its rate limiter let it go, and at the limit of
        `concurrency` that is an interval later. So request k of a constant rate was due k intervals after request 0,
        the whole as early as the limiter allows; none is let go early.
        """
        stamps = [row["metadata"] for row in native]
        rate_rps = self.load.parameters.get("rate_rps")
        gap_ns = 0.0 if rate_rps is None else 1e9 / float(rate_rps)
        after_ns = [round(stamp["session_num"] * gap_ns) for stamp in stamps]
        let_go_ns = [stamp.get("credit_issued_ns") for stamp in stamps]
        first_ns = min(
            (at - after for at, after in zip(let_go_ns, after_ns, strict=True) if at is not None), default=0
        )
        found = []
        for row, after, let_go in zip(native, after_ns, let_go_ns, strict=True):
            due_ns = None if self.load.closed or let_go is None else first_ns + after - self.begun_ns
            found.append(self._request(row, None if due_ns is None else due_ns / 1e9))
        return found

    def _request(self, row: Any, due_s: float | None) -> NativeRequest:
        """Return a request of a record, whose latencies are in ms from its sending to chunks with tokens."""
        latency_ms, first_ms, tokens = (
            row["metrics"].get(name, {}).get("value")
            for name in ("request_latency", "time_to_first_token", "output_sequence_length")
        )
        sent_s, ended_s = (
            (row["metadata"][name] - self.begun_ns) / 1e9 for name in ("request_start_ns", "request_end_ns")
        )
        failed = None if (error := row.get("error")) is None else _said(error)
        return NativeRequest(
            sent_s=sent_s,
            due_s=due_s,
            first_s=None if first_ms is None else sent_s + first_ms / 1e3,
            end_s=ended_s if latency_ms is None else sent_s + latency_ms / 1e3,
            tokens=0 if failed is not None else int(tokens or 0),
            failed=failed,
        )


def _said(error: Any) -> str:
    """Return what AIPerf says of a failure, as `failure_of` reads it: a status, or an exception in one line."""
    kind, code = str(error.get("type") or ""), error.get("code")
    if code and kind not in OWN_ERRORS:
        return f"error '{code}'"
    return " ".join(f"{kind}: {error['message']}".split())
