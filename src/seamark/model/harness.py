"""Other tools as the load of a trial, as data: environment, driver, and what each can send. Nothing runs here."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from seamark.model.service import Value
from seamark.model.trial import Trial

HARNESS = "harness"
"""Setting of a workload that names a tool of HARNESSES."""
SEAMARK = "seamark"
"""The level of it that is no other tool; without a level the load is Seamark's own too."""
ROOT = "harness_root"
"""Setting of a job, and of no scenario: the root of the tool's environment."""
ANY: None = None


@dataclass(frozen=True, kw_only=True)
class Harness:
    """A tool that sends the load of a trial in place of Seamark.

    `environment` is the lock of the environment in which it runs, None for a program of the machine. `driver` is the
    Task that calls it and converts its results. `reads` has the settings of a workload that it follows, each with the
    values that it can follow, ANY for all; others stay at their default.
    """

    environment: str | None
    licence: str
    driver: str
    reads: Mapping[str, tuple[Value, ...] | None]


_READ_BY_ALL: Mapping[str, tuple[Value, ...] | None] = {
    HARNESS: ANY,
    **dict.fromkeys(("concurrency", "rate_rps", "requests", "duration_s", "warmup_s", "timeout_s"), ANY),
    **dict.fromkeys(("until_last_reply", "prompt_len", "prefix_len", "gen_tokens"), ANY),
    **dict.fromkeys(("endpoint", "served_model", "tokenizer", "temperature"), ANY),
    "caches": (None, "keep", "reset"),
    "stream": (True,),
    "ignore_eos": (True,),
    "prompt_form": (None, "text"),
}
HARNESSES: Mapping[str, Harness] = {
    "vllm_bench": Harness(
        environment="vllm",
        licence="Apache-2.0",
        driver="seamark.drivers.harness.vllm_bench:VllmBench",
        reads={
            **_READ_BY_ALL,
            "pattern": ("closed", "constant", "poisson", "gamma"),
            **dict.fromkeys(("burstiness", "base_path", "api_key_env"), ANY),
        },
    ),
    "guidellm": Harness(
        environment="guidellm",
        licence="Apache-2.0",
        driver="seamark.drivers.harness.guidellm:GuideLlm",
        reads={
            **_READ_BY_ALL,
            "pattern": ("closed", "constant", "poisson"),
            **dict.fromkeys(("prompt_len_shape", "prompt_len_spread", "prefix_groups"), ANY),
            **dict.fromkeys(("gen_tokens_shape", "gen_tokens_spread"), ANY),
        },
    ),
    "fio": Harness(
        environment=None,
        licence="GPL-2.0",
        driver="seamark.drivers.harness.fio:Fio",
        reads={
            **dict.fromkeys((HARNESS, "concurrency", "duration_s", "warmup_s", "timeout_s"), ANY),
            **dict.fromkeys(("access", "block_bytes", "direct"), ANY),
            "pattern": ("closed",),
            "operation": ("read", "write"),
            "fsync": ("none", "end"),
        },
    ),
}


def harness_of(settings: Mapping[str, Value]) -> Harness | None:
    """Return the tool that sends the load of a trial by its settings, None where Seamark does."""
    return HARNESSES.get(str(settings.get(HARNESS)))


def harnesses_of(trials: Iterable[Trial]) -> dict[str, Harness]:
    """Return the tools that send loads of these trials, by the environment of each, without programs of the
    machine."""
    found = (harness_of(trial.settings) for trial in trials)
    return {tool.environment: tool for tool in found if tool is not None and tool.environment is not None}
