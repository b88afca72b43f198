"""The module names of the original benchmark: stages and schedulers written for it are imported unedited.

`stages`, `loadgen` and `utils` are looked for in the study's folder first, then here. Only processes of pipelines
open them.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

from seamark.errors import did_you_mean
from seamark_pipelines.flow import before_import

HERE = "seamark_pipelines"
BEFORE = before_import.__name__
"""The module that is imported before all libraries."""
MODULES: Mapping[str, str] = {
    "stages.stage": f"{HERE}.flow.stage",
    "stages.evaluation": f"{HERE}.stages.overhead",
    "stages.evaluation.copy_stage": f"{HERE}.stages.overhead",
    "stages.evaluation.data_injector": f"{HERE}.stages.overhead",
    "stages.capture": f"{HERE}.stages.capture",
    "stages.llm_huggingface": f"{HERE}.stages.llm_huggingface",
    "stages.llm_server": f"{HERE}.stages.llm_server",
    "stages.llm_torchtune": f"{HERE}.stages.llm_torchtune",
    "stages.self_rag": f"{HERE}.stages.self_rag",
    "stages.torchvision_classification": f"{HERE}.stages.torchvision_classification",
    "stages.scripted": f"{HERE}.stages.scripted",
    "loadgen.schedulers": f"{HERE}.flow.schedulers",
    "loadgen.schedulers.scheduler": f"{HERE}.flow.schedulers",
    "utils.schemas": f"{HERE}.flow.schemas",
    "utils.schemas.query": f"{HERE}.model.query",
    "utils.schemas.rag": f"{HERE}.stages.answers",
    "utils.chat": f"{HERE}.stages.rag_prompts",
    "utils.component": f"{HERE}.flow.source_names",
    "utils.queues": f"{HERE}.flow.schemas",
    "utils.queues.polling": f"{HERE}.flow.schemas",
}
"""Modules by their name in the original benchmark."""
LIBRARIES = frozenset(
    {
        *("PIL", "accelerate", "bm25s", "datasets", "faiss", "peft", "pydantic", "tokenizers"),
        *("torch", "torchao", "torchtune", "torchvision", "transformers"),
    }
)
"""Modules of the environment `pipelines`."""
SLOW_TO_IMPORT: Mapping[str, tuple[str, ...]] = {
    "stages.llm_huggingface": ("transformers.models.auto.modeling_auto", "datasets", "peft"),
    "stages.self_rag": ("datasets", "faiss", "bm25s"),
    "stages.torchvision_classification": ("torchvision.models", "torchvision.transforms.v2", "torchvision.datasets"),
}
"""Families that the processes of a run import once, each with what it imports later. torchtune is none: it asks for
the GPU on import, and CUDA does not outlive a fork."""
PACKAGES: Mapping[str, str] = {
    "stages": f"{HERE}.stages",
    "loadgen": f"{HERE}.flow.schedulers",
    "utils": f"{HERE}.flow.schemas",
}
"""Top-level packages, each with the module whose names it has as well."""


class _Ours(MetaPathFinder, Loader):
    """Finds a module of MODULES that the study does not have."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if fullname in MODULES else None

    def exec_module(self, module: ModuleType) -> None:
        ours = sys.modules[module.__name__] = import_module(MODULES[module.__name__])
        if not hasattr(ours, "__path__") and any(name.startswith(f"{module.__name__}.") for name in MODULES):
            ours.__path__ = []  # others are imported from it


def open_names(study: Path) -> None:
    """Make the original module names importable in this process."""
    for package, ours in PACKAGES.items():
        if package in sys.modules and getattr(sys.modules[package], "__seamark__", False):
            continue
        folder = study / package
        module = import_module(package) if (folder / "__init__.py").exists() else ModuleType(package)
        module.__path__ = [str(folder)]
        module.__seamark__ = True  # type: ignore[attr-defined]
        sys.modules[package] = module
        for name, value in vars(import_module(ours)).items():
            if not name.startswith("_") and not hasattr(module, name):
                setattr(module, name, value)
    if not any(isinstance(finder, _Ours) for finder in sys.meta_path):
        sys.meta_path.append(_Ours())


def get_component(path: str) -> Any:
    """Return the object at a dotted path: `package.module.Name`, or an attribute of a class.

    Raises ValueError for a path that leads nowhere, with the nearest name.
    """
    first, *rest = path.split(".")
    try:
        found: Any = import_module(first)
    except ModuleNotFoundError as error:
        raise ValueError(f"'{path}': there is no module '{first}'") from error
    reached = first
    for part in rest:
        inner = f"{reached}.{part}"
        if hasattr(found, part):
            found = getattr(found, part)
        elif isinstance(found, ModuleType):
            try:
                found = import_module(inner)
            except ModuleNotFoundError as error:
                if error.name not in (inner, part):
                    raise ValueError(f"'{path}' cannot be imported: {error}") from error
                names = [name for name in vars(found) if not name.startswith("_")]
                names += [name.rpartition(".")[2] for name in MODULES if name.rpartition(".")[0] == reached]
                raise ValueError(f"'{reached}' has no '{part}'.{did_you_mean(part, names)}") from error
        else:
            raise ValueError(f"'{reached}' has no '{part}'.{did_you_mean(part, dir(found))}")
        reached = inner
    return found
