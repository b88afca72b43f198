"""guidellm as the load of a trial: command line and results of guidellm 0.8 (report schema 2)."""

import json
import time
from pathlib import Path
from typing import Any

from seamark.drivers.harness.tool import NATIVE, NativeRequest, Tool
from seamark.drivers.openai.requests import Asks

FORMATS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
PROMPTS = "prompts.jsonl"
STATES = {"successful": None, "errored": "", "incomplete": "cancelled"}
"""Groups of requests in its results, each with what is said of one without an error of its own."""


class GuideLlm(Tool):
    """Prompts that Seamark draws, as a file. Its clock is Python's `time`."""

    name = "guidellm"

    def now_s(self) -> float:
        """Return seconds since 1970."""
        return time.time()

    def command(self, work: Path, seed: int) -> list[str]:
        """Return the command line, after writing the prompts."""
        settings, load = self.settings, self.load
        endpoint = str(settings.get("endpoint") or "completions")
        self._write_prompts(work / PROMPTS, endpoint, seed)
        backend: dict[str, Any] = {"kind": "openai_http", "target": self.url, "model": self.model}
        backend |= {"request_format": FORMATS[endpoint], "timeout": load.timeout_s}
        if (temperature := settings.get("temperature", 0.0)) is not None:
            backend["extras"] = {"body": {"temperature": temperature}}
        profile: dict[str, Any] = {"kind": "concurrent", "streams": [load.concurrency]}
        if not load.closed:
            rate_rps = load.parameters["rate_rps"]
            profile = {"kind": load.pattern, "rate": [rate_rps], "max_concurrency": load.concurrency}
        options = {
            "backend": backend,
            "profile": profile,
            "constraint": {"kind": "max_requests", "count": self.count},
            "tokenizer": {"kind": "huggingface_auto", "model": self.tokenizer(work)},
            "data": {"kind": "json_file", "path": str(work / PROMPTS)},
            "seed": {"kind": "static", "value": seed},
            "output": {"kind": "json", "path": str(work / NATIVE)},
        }
        written = (word for name, option in options.items() for word in (f"--{name}", json.dumps(option)))
        return [f"{self.root}/bin/guidellm", "run", *written, "--disable-console"]

    def requests(self, native: Any) -> list[NativeRequest]:
        """Return the requests of the one benchmark of a report, in seconds since 1970, without those that were never
        sent."""
        [benchmark] = native["benchmarks"]
        found = []
        for state, otherwise in STATES.items():
            for row in benchmark["requests"][state] or ():
                info, timings = row["info"], row["info"]["timings"]
                sent_s = timings["request_start"] or timings["resolve_start"]
                if sent_s is None:
                    continue
                found.append(
                    NativeRequest(
                        sent_s=sent_s,
                        due_s=timings["targeted_start"],
                        first_s=timings["first_token_iteration"],
                        end_s=timings["request_end"] or timings["resolve_end"] or sent_s,
                        tokens=int(row.get("output_tokens") or 0) if otherwise is None else 0,
                        failed=None if otherwise is None else str(info.get("error") or otherwise),
                    )
                )
        return found

    def _write_prompts(self, path: Path, endpoint: str, seed: int) -> None:
        """Write a line for each request, by the settings of Seamark's own prompts. Raises UserError for lengths that
        no prompt can have."""
        asks = Asks({**self.settings, "prompt_form": "text"}, endpoint, 1)
        drawn = asks.drawn(min(self.count, asks.count), seed)
        with path.open("w", encoding="utf-8") as file:
            for number in range(self.count):
                ask = drawn[number % len(drawn)]
                row = {"prompt": ask.prompts[0], "output_tokens_count": ask.gen_tokens}
                file.write(json.dumps(row) + "\n")
