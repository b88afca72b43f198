"""What stages with models share: devices, and objects and names in a configuration."""

from collections.abc import Mapping
from typing import Any

import torch

from seamark_pipelines.flow.source_names import get_component


def device_of(name: str | None) -> torch.device:
    """Return the device that a configuration names; None or `auto`: a GPU if there is one. Raises ValueError for a
    device that is not here."""
    if name in (None, "auto"):
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(str(name))
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"the device '{name}' is not here: set device to cpu or auto")
    return device


def synchronize(device: torch.device) -> None:
    """Wait until the device has done its work, so that a stage ends when its work does."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def made(config: Mapping[str, Any], /, *arguments: Any, **named: Any) -> Any:
    """Return the object that a mapping describes: `component` is the dotted path of its class or function, all other
    keys are arguments."""
    own = {key: value for key, value in config.items() if key != "component"}
    return get_component(str(config["component"]))(*arguments, **named, **own)


def name_of(config: Mapping[str, Any], key: str = "model") -> str:
    """Return the name that a configuration writes as `model_name: X`, `model: X` or `model: {name: X}`.

    Raises ValueError without one.
    """
    found = config.get(f"{key}_name", config.get(key))
    if isinstance(found, Mapping):
        found = found.get("name")
    if not found:
        raise ValueError(f"the key '{key}' is missing: its name")
    return str(found)
