"""The study of a matrix: its scenario, written from System B's arguments, and the trial of each stub."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from seamark.config.forms.table import preset_files
from seamark.config.read import Recipes
from seamark.config.yaml_source import Mistakes, load
from seamark.errors import UserError, did_you_mean
from seamark.model.service import Service, Value
from seamark.model.trial import Trial
from seamark.planning.study import SHIPPED, Study, config_folder
from seamark.storage.documents import write_text
from seamark.storage.paths import expanded
from seamark_evaluate.attention.method import with_weights_at
from seamark_evaluate.config.benchmark_files import tasks_of
from seamark_evaluate.evaluation.adapters import DeviceKind, adapter_settings, service_of
from seamark_evaluate.evaluation.evaluated_trial import setting_name
from seamark_evaluate.evaluation.matrix import (
    AdapterConfig,
    BenchmarkConfig,
    BenchmarkStub,
    Sparse,
    settings_of_generation,
)

SCENARIO = "matrix"
FOLDERS = ("benchmarks", "methods", "services", "sites")
"""Folders of `config` that the study shares with the working folder, where that has them."""
REQUEST_KWARGS = {"max_context_length": "max_context_tokens", "max_requests": "max_requests"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of all stubs: how tokens are chosen (`generation`), and how much of each task is asked (`request`)."""

    generation: Mapping[str, Any] = field(default_factory=dict)
    request: Mapping[str, Any] = field(default_factory=dict)


def study_of(
    stubs: Sequence[BenchmarkStub],
    adapter: AdapterConfig,
    options: Options,
    base: Path,
    lanes: Mapping[str, Any],
    device_kind: DeviceKind,
    at_once: int = 1,
) -> Study:
    """Write the scenario of a matrix into its study, `base/.seamark`, and read it. On GPUs each server has one of its
    own. Where there are fewer models than stubs `at_once`, replicas of each divide its tasks.

    Raises UserError with its mistakes.
    """
    root = (base / ".seamark").resolve()
    for name in FOLDERS:
        shared, target = Path("config", name).resolve(), root / "config" / name
        if shared.is_dir() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(shared)
    service = service_of(adapter, Recipes(config_folder(root, "services")), device_kind)
    models = list(dict.fromkeys(stub.model_name for stub in stubs))
    workload = {
        "component": service.component,
        "service": service.name,
        "model": models,
        **_methods(stubs, service),
        "task": list(dict.fromkeys(stub.task for stub in stubs)),
        **adapter_settings(adapter, service),
        **settings_of_generation(options.generation),
        **_settings_of_requests(options.request),
    }
    path = root / "config/scenarios" / f"{SCENARIO}.yaml"
    resources = {"resources": {"gpus": 1}} if device_kind == "gpu" else {}
    each = -(-at_once // len(models))
    replicas = {"replicas": each} if each > 1 and service.server is not None else {}
    document = {"scenario": SCENARIO, "repetitions": 1, **replicas, **resources, "workload": workload}
    write_text(path, yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    return Study.at(root, scenario=str(path), site="local", lanes=json.dumps(lanes))


def _settings_of_requests(kwargs: Mapping[str, Any]) -> Mapping[str, Value]:
    for name in kwargs:
        if name not in REQUEST_KWARGS:
            guess = did_you_mean(name, REQUEST_KWARGS) or f" Known: {', '.join(REQUEST_KWARGS)}."
            raise UserError(f"request_kwargs: '{name}' is not known.{guess}")
    return {REQUEST_KWARGS[name]: value for name, value in kwargs.items()}


def _methods(stubs: Sequence[BenchmarkStub], service: Service) -> Mapping[str, Any]:
    """Return the setting `method` of a matrix; none for a service that has dense attention alone."""
    configs = {stub.sparse_config_name: stub.sparse_attention_config for stub in stubs}
    if service.setting("method") is not None:
        return {"method": [_level(name, config) for name, config in configs.items()]}
    if any(config is not None for config in configs.values()):
        raise UserError(f"adapter_config: {service.name} has dense attention alone. Use the adapter 'huggingface'.")
    return {}


def _level(name: str, config: Sparse) -> Mapping[str, Any]:
    """Return a level of `method` under the configuration's name: dense for None, a preset, or maskers. Raises
    UserError for an unknown preset."""
    if not isinstance(config, str):
        own = {**(config or {"maskers": []}), "name": name}
        return with_weights_at(own, lambda file: str(expanded(file)))  # the run works in another folder
    known = preset_files(config_folder(Path.cwd(), "methods"))
    if config not in known:
        guess = did_you_mean(config, known) or f" Known: {', '.join(known)}."
        raise UserError(f"sparse_attention_configs: '{config}' is no method.{guess}")
    mistakes = Mistakes()
    preset = load(known[config], mistakes)
    mistakes.raise_any()
    assert preset is not None, "a file that cannot be read leaves a mistake"
    return with_weights_at({**preset.plain, "name": name}, lambda file: str(expanded(file)))


def tasks_in(config: BenchmarkConfig) -> list[tuple[str, str | None]]:
    """Return the tasks of a benchmark as pairs with a subset, None for a benchmark without subsets. Raises UserError
    for unknown names."""
    name = config.benchmark_name
    if config.subsets is not None and not config.subsets:
        raise UserError(f"benchmark_configs: '{name}' has an empty list of subsets. Give None for all of them.")
    wanted = [name] if config.subsets is None else [f"{name}/{subset}" for subset in config.subsets]
    folders = [config_folder(Path.cwd(), "benchmarks"), SHIPPED / "config" / "benchmarks"]
    found = [task for label in wanted for task in tasks_of(label, folders)]
    return [(benchmark, subset or None) for benchmark, _, subset in (task.partition("/") for task in found)]


def trials_by_stub(study: Study, stubs: Sequence[BenchmarkStub]) -> Mapping[str, Trial]:
    """Return the trial of each stub, by the stub's folder."""
    trials = {
        (
            str(trial.settings["model"]),
            setting_name(trial, "method") if trial.settings.get("method") else None,
            setting_name(trial, "task"),
        ): trial
        for trial in study.plan.trials
    }
    varied = any(method is not None for _, method, _ in trials)
    return {
        stub.result_dir: trials[stub.model_name, stub.sparse_config_name if varied else None, stub.task]
        for stub in stubs
    }
