"""Counters of the server, and /metrics in Prometheus's text form."""

from collections import Counter
from dataclasses import dataclass, field
from threading import Lock

NAMES = {
    "prompt_tokens": ("counter", "Tokens of prompts, contexts included."),
    "cached_prompt_tokens": ("counter", "Tokens of prompts that were not computed again."),
    "generation_tokens": ("counter", "Tokens of answers."),
    "question_keys_kept": ("counter", "Keys that questions read, by layer, head and query."),
    "question_keys_allowed": ("counter", "Keys that causality allows them. Kept over allowed is the density."),
    "answer_keys_kept": ("counter", "Keys that tokens of answers read."),
    "answer_keys_allowed": ("counter", "Keys that causality allows them."),
    "kv_read_bytes": ("counter", "Bytes of keys and values that questions and answers read."),
    "output_errors": (
        "counter",
        "Sum of relative errors of attention's output, a mean of each request that was sampled.",
    ),
    "output_errors_sampled": ("counter", "Requests of which the output error was sampled."),
    "contexts_reused": ("counter", "Requests whose whole context was there already."),
    "prefill_halvings": ("counter", "Times that a chunk of a prompt was halved for lack of memory."),
    "request_seconds": ("counter", "Time in which requests were computed."),
    "requests_running": ("gauge", "Requests that are computed now: one at most."),
    "requests_waiting": ("gauge", "Requests that wait for their turn."),
}


@dataclass(kw_only=True)
class Counters:
    """Values of NAMES, and the number of requests by outcome: `ok`, `cancelled`, or the category of a failure.

    The event loop and the computing thread both add to them.
    """

    values: dict[str, float] = field(default_factory=lambda: dict.fromkeys(NAMES, 0))
    outcomes: Counter[str] = field(default_factory=Counter)
    lock: Lock = field(default_factory=Lock)

    def add(self, **amounts: float) -> None:
        """Add to values by name."""
        with self.lock:
            for name, amount in amounts.items():
                self.values[name] += amount

    def end(self, outcome: str) -> None:
        """Count a request that is over."""
        with self.lock:
            self.outcomes[outcome] += 1

    def page(self) -> str:
        """Return the page (https://prometheus.io/docs/instrumenting/exposition_formats/)."""
        with self.lock:
            values, outcomes = dict(self.values), dict(self.outcomes)
        lines = ["# HELP seamark_requests_total Requests by outcome.", "# TYPE seamark_requests_total counter"]
        lines += [f'seamark_requests_total{{outcome="{name}"}} {count}' for name, count in outcomes.items()]
        for name, (kind, meaning) in NAMES.items():
            full = f"seamark_{name}_total" if kind == "counter" else f"seamark_{name}"
            lines += [f"# HELP {full} {meaning}", f"# TYPE {full} {kind}", f"{full} {values[name]:.17g}"]
        return "\n".join(lines) + "\n"
