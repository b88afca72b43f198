"""Adapters: how the models of a matrix are run. Each is the recipe of a service that answers questions."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from seamark.errors import UserError, did_you_mean
from seamark.model.service import Service, Value, sound_services
from seamark_evaluate.evaluation.matrix import AdapterConfig
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
            raise UserError(f"adapter_config.{what}: {service.name} has no {_listed(rest)}. It has: {_own(service)}.")
        try:
            found[rest_in] = json.dumps(rest, sort_keys=True)
        except TypeError as error:
            raise UserError(f"adapter_config.{what}: {error}. Give texts, numbers, true and false.") from None
    return found


def _listed(names: Iterable[str]) -> str:
    return " and no ".join(f"'{name}'" for name in names)


def _own(service: Service) -> str:
    return ", ".join(
        setting.name for setting in service.settings if setting.role == "deployment" and setting.name not in NEEDED
    )
