"""The matrix of an evaluation: models x attention configurations x benchmarks x subsets as stubs, their progress and
results. Names, and fields in their order, are those of System B in the requirements: callers give them by place."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seamark.errors import UserError
from seamark.model.service import Value

FORBIDDEN = r'[/\\:*?"<>|]'
"""Characters that a name loses in a path, each for one `_`. Hyphens and dots stay."""


Sparse = Mapping[str, Any] | str | None
"""An attention configuration: maskers, the name of a preset, or None for dense attention."""


@dataclass(frozen=True)
class BenchmarkConfig:
    """A benchmark, and its subsets: None stands for all of them, one stub each."""

    benchmark_name: str
    subsets: Sequence[str] | None = None


@dataclass(frozen=True)
class AdapterConfig:
    """How models are run. `adapter_name` is a key of ADAPTERS, or the recipe of a service that answers questions.

    `model_kwargs` and `tokenizer_kwargs` go to the model's and the tokenizer's `from_pretrained`. The attention
    configuration is none of it: it varies in the matrix.
    """

    adapter_name: str = "huggingface"
    model_kwargs: Mapping[str, Any] | None = None
    tokenizer_kwargs: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class BenchmarkStub:
    """One cell of the matrix, with a folder of its own. `sparse_attention_config` is None for dense attention."""

    model_name: str
    sparse_config_name: str
    sparse_attention_config: Sparse
    benchmark_name: str
    subset: str | None
    adapter_config: AdapterConfig
    generation_kwargs: Mapping[str, Any]
    result_dir: str

    @property
    def title(self) -> str:
        """`model/attention/benchmark[_subset]`, as in the skip line."""
        return f"{self.model_name}/{self.sparse_config_name}/{_folder(self.benchmark_name, self.subset)}"

    @property
    def task(self) -> str:
        """The task as scenarios name it: `benchmark[/subset]`."""
        return self.benchmark_name if self.subset is None else f"{self.benchmark_name}/{self.subset}"


@dataclass(frozen=True)
class ExecutionProgress:
    """How far an execution is. `current_executions` says what runs on each device, by its id."""

    total_stubs: int
    skipped_stubs: int = 0
    completed_stubs: int = 0
    failed_stubs: int = 0
    current_executions: Mapping[int, str] = field(default_factory=dict)

    @property
    def completion_percentage(self) -> float:
        """Share of all stubs that need nothing more, in percent; 100 of an empty matrix."""
        ended = self.skipped_stubs + self.completed_stubs + self.failed_stubs
        return 100.0 if not self.total_stubs else 100.0 * ended / self.total_stubs


@dataclass(frozen=True)
class BenchmarkResult:
    """Outcome of a stub that was evaluated, now or before: its scores and figures. `execution_time` in seconds."""

    stub: BenchmarkStub
    metrics: Mapping[str, Any]
    execution_time: float
    success: bool = True
    error_message: str | None = None


@dataclass(frozen=True)
class BenchmarkFailure:
    """A stub that failed: `error_type` is a category of failures. `execution_time` in seconds."""

    stub: BenchmarkStub
    error_message: str
    error_type: str
    execution_time: float


@dataclass(frozen=True)
class ExecutionResults:
    """Results of one execution. `execution_time` in seconds."""

    execution_summary: Mapping[str, Any]
    individual_results: Sequence[BenchmarkResult]
    failed_executions: Sequence[BenchmarkFailure]
    execution_time: float


def path_name(name: str) -> str:
    """Return a name as a folder of its own: each of `/ \\ : * ? " < > |` becomes `_`."""
    return re.sub(FORBIDDEN, "_", name)


def stubs_of(
    model_names: Sequence[str],
    sparse_attention_configs: Sequence[tuple[str, Sparse]],
    tasks: Sequence[tuple[str, str | None]],
    adapter_config: AdapterConfig,
    generation_kwargs: Mapping[str, Any],
    base_result_dir: str,
) -> tuple[BenchmarkStub, ...]:
    """Return the stubs of a matrix: models first, then attention configurations, then tasks, which are pairs of a
    benchmark and its subset.

    Raises UserError with every mistake: an empty list, a repeated name, two names that would share a folder.
    """
    names = [name for name, _ in sparse_attention_configs]
    mistakes = [
        *_name_mistakes("model_names", model_names),
        *_name_mistakes("sparse_attention_configs", names),
        *_name_mistakes("benchmark_configs", [_folder(*task) for task in tasks]),
    ]
    if mistakes:
        raise UserError(*mistakes)
    return tuple(
        BenchmarkStub(
            model_name=model,
            sparse_config_name=method,
            sparse_attention_config=config,
            benchmark_name=benchmark,
            subset=subset,
            adapter_config=adapter_config,
            generation_kwargs=dict(generation_kwargs),
            result_dir=str(
                Path(base_result_dir, path_name(model), path_name(method), path_name(_folder(benchmark, subset)))
            ),
        )
        for model in model_names
        for method, config in sparse_attention_configs
        for benchmark, subset in tasks
    )


def _folder(benchmark: str, subset: str | None) -> str:
    return benchmark if subset is None else f"{benchmark}_{subset}"


def _name_mistakes(what: str, names: Sequence[str]) -> list[str]:
    """Return why names cannot be those of folders side by side."""
    if not names:
        return [f"{what}: an empty list. Name at least one."]
    first: dict[str, str] = {}
    found = []
    for name in names:
        folder = path_name(name)
        if not name.strip() or folder in (".", ".."):
            found.append(f"{what}: '{name}' names no folder.")
        elif folder.casefold() not in first:
            first[folder.casefold()] = name
        elif (other := first[folder.casefold()]) == name:
            found.append(f"{what}: '{name}' is listed twice. Remove one.")
        else:
            found.append(f"{what}: '{other}' and '{name}' would share the folder '{folder}'. Rename one.")
    return found


def settings_of_generation(kwargs: Mapping[str, Any]) -> dict[str, Value]:
    """Return the settings that generation options stand for. Raises UserError for one that no setting has."""
    known = {"max_new_tokens": "max_new_tokens", "temperature": "temperature", "seed": "sampling_seed"}
    found: dict[str, Value] = {}
    for name, value in kwargs.items():
        if name == "do_sample":
            if value and not kwargs.get("temperature"):
                found["temperature"] = 1.0
            elif not value:
                found["temperature"] = 0.0
        elif name in known:
            found.setdefault(known[name], value)
        else:
            raise UserError(f"generation_kwargs: '{name}' is not known. Known: do_sample, {', '.join(known)}.")
    return found
