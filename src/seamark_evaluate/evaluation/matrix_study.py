"""The study of a matrix: its scenario, written from System B's arguments, the trial of each stub, and adapters:
recipes of services that answer questions."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml

from seamark.config.forms.table import preset_files
from seamark.config.read import Recipes
from seamark.config.yaml_source import Mistakes, load
from seamark.errors import UserError, did_you_mean
from seamark.model.service import Service, Value, sound_services
from seamark.model.trial import Trial
from seamark.planning.study import SHIPPED, Study, config_folder
from seamark.storage.documents import write_text
from seamark.storage.paths import expanded
from seamark_evaluate.attention.method import with_weights_at
from seamark_evaluate.config.benchmark_files import tasks_of
from seamark_evaluate.evaluation.evaluated_trial import setting_name
from seamark_evaluate.evaluation.matrix import (
    AdapterConfig,
    BenchmarkConfig,
    BenchmarkStub,
    Sparse,
    settings_of_generation,
)
from seamark_evaluate.server.arguments import TAKEN

DeviceKind = Literal["gpu", "cpu"]
ADAPTERS: Mapping[str, Mapping[DeviceKind, str]] = {"huggingface": {"gpu": "attention_cuda", "cpu": "attention"}}
"""Recipe by the name of its adapter and the kind of devices; any other name is that of a recipe itself."""
RENAMED = {"torch_dtype": "dtype", "device_map": "device"}
"""Settings by the names that `from_pretrained` has for them."""
NEEDED = ("model", "task")


def service_of(adapter: AdapterConfig, services: Mapping[str, Service], device_kind: DeviceKind) -> Service:
    """Return the service of an adapter on devices of a kind. Raises UserError for a name that is none, or a service
    without tasks."""

    def recipe(each: str) -> str:
        return ADAPTERS[each][device_kind] if each in ADAPTERS else each

    name = recipe(adapter.adapter_name)
    if name not in services or not _answers(services[name]):
        sound = sound_services(services)
        able = [key for key in (*ADAPTERS, *sound) if (own := sound.get(recipe(key))) and _answers(own)]
        guess = did_you_mean(adapter.adapter_name, able) or f" Known: {', '.join(able)}."
        raise UserError(f"adapter_config: '{adapter.adapter_name}' is no adapter.{guess}")
    return services[name]


def _answers(service: Service) -> bool:
    return all(service.setting(name) is not None for name in NEEDED)


def adapter_settings(adapter: AdapterConfig, service: Service) -> dict[str, Value]:
    """Return the settings that the options of an adapter stand for.

    An option that is a setting of the service, under its own name or that of `from_pretrained`, is that setting; all
    others go to the model or the tokenizer, where the service has `model_options` and `tokenizer_options`. Raises
    UserError with the allowed names for one that the service cannot pass on, and for one that its server sets itself.
    """
    found: dict[str, Value] = {}
    for what, kwargs, rest_in in (
        ("model_kwargs", adapter.model_kwargs, "model_options"),
        ("tokenizer_kwargs", adapter.tokenizer_kwargs, "tokenizer_options"),
    ):
        rest: dict[str, Any] = {}
        for name, value in (kwargs or {}).items():
            setting = RENAMED.get(name, name)
            if service.setting(setting) is not None and setting not in NEEDED:
                plain = value is None or isinstance(value, (str, int, float))
                found[setting] = value if plain else str(value).removeprefix("torch.")
            elif what == "model_kwargs" and name in TAKEN:
                raise UserError(
                    f"adapter_config.{what}: '{name}' is set by the server itself, which computes attention by its"
                    " own methods. Remove it."
                )
            else:
                rest[name] = value
        if not rest:
            continue
        if service.setting(rest_in) is None:
            names = " and no ".join(f"'{name}'" for name in rest)
            raise UserError(f"adapter_config.{what}: {service.name} has no {names}. It has: {_own(service)}.")
        try:
            found[rest_in] = json.dumps(rest, sort_keys=True)
        except TypeError as error:
            raise UserError(f"adapter_config.{what}: {error}. Give texts, numbers, true and false.") from None
    return found


def _own(service: Service) -> str:
    return ", ".join(
        setting.name for setting in service.settings if setting.role == "deployment" and setting.name not in NEEDED
    )


SCENARIO = "matrix"
FOLDERS = ("benchmarks", "methods", "services", "sites")
"""Folders of `config` that the study shares with the working folder, where that has them."""
REQUEST_KWARGS = {"max_context_length": "max_context_tokens", "max_requests": "max_requests"}


def study_of(
    stubs: Sequence[BenchmarkStub],
    request_kwargs: Mapping[str, Any],
    base: Path,
    lanes: Mapping[str, Any],
    device_kind: DeviceKind,
    at_once: int = 1,
) -> Study:
    """Write the scenario of a matrix into its study, `base/.seamark`, and read it. `request_kwargs` say how much of
    each task is asked. On GPUs each server has one of its own. Where there are fewer models than stubs `at_once`,
    replicas of each divide its tasks.

    Raises UserError with its mistakes.
    """
    root = (base / ".seamark").resolve()
    for name in FOLDERS:
        shared, target = Path("config", name).resolve(), root / "config" / name
        if shared.is_dir() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(shared)
    adapter, generation = stubs[0].adapter_config, stubs[0].generation_kwargs  # those of all stubs
    service = service_of(adapter, Recipes(config_folder(root, "services")), device_kind)
    models = list(dict.fromkeys(stub.model_name for stub in stubs))
    workload = {
        "component": service.component,
        "service": service.name,
        "model": models,
        **_methods(stubs, service),
        "task": list(dict.fromkeys(stub.task for stub in stubs)),
        **adapter_settings(adapter, service),
        **settings_of_generation(generation),
        **_settings_of_requests(request_kwargs),
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
