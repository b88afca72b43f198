"""Which pipelines need libraries that the base environment does not have, by the source of their stages: nothing is
imported."""

import ast
import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from seamark_pipelines.flow.source_names import HERE, MODULES, PACKAGES
from seamark_pipelines.model.graph import PipelineModel

LIBRARIES = frozenset(
    {
        *("PIL", "accelerate", "bm25s", "datasets", "faiss", "peft", "pydantic", "tokenizers"),
        *("torch", "torchao", "torchtune", "torchvision", "transformers"),
    }
)
"""Modules of the environment `pipelines`."""
FAMILIES = f"{HERE}.stages"


def library_of(model: PipelineModel, study: Path) -> str | None:
    """Return a library that a stage of a pipeline needs, None without one.

    A stage needs what its module imports, or a module of stages that it imports, and what its configuration names.
    """
    components = [stage.component for stage in model.stages]
    for named in dict.fromkeys([*components, *_texts([stage.config for stage in model.stages])]):
        first, dot, _ = named.partition(".")
        if dot and first in LIBRARIES:
            return first
        if dot and (first in PACKAGES or named in components):
            found = _library(named.rpartition(".")[0], named.rpartition(".")[2], study, set())
            if found is not None:
                return found
    return None


def _texts(config: Any) -> Iterator[str]:
    if isinstance(config, str):
        yield config
    elif isinstance(config, (Mapping, list, tuple)):
        for value in config.values() if isinstance(config, Mapping) else config:
            yield from _texts(value)


def _library(module: str, name: str | None, study: Path, seen: set[Path]) -> str | None:
    """Return a library that a module needs, of all in it or of what it imports as `name`."""
    path = _file(module, study)
    if path is None or path in seen:
        return None
    tree = None
    with suppress(OSError, SyntaxError, ValueError):
        tree = ast.parse(path.read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))] if tree else []
    for node in imports:
        if isinstance(node, ast.ImportFrom) and name in [alias.asname or alias.name for alias in node.names]:
            return _library(_absolute(node, module, path), name, study, seen)
    seen.add(path)
    for node in imports:
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            package = _absolute(node, module, path)
            names = [package, *(f"{package}.{name}" for name in names)]
        for found in names:
            first = found.partition(".")[0]
            if first in LIBRARIES:
                return first
            if first in PACKAGES or found.startswith(FAMILIES):
                library = _library(found, None, study, seen)
                if library is not None:
                    return library
    return None


def _absolute(node: ast.ImportFrom, module: str, path: Path) -> str:
    """Return the module that an import names, where it is relative to the one that it stands in."""
    if not node.level:
        return node.module or ""
    parts = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _file(module: str, study: Path) -> Path | None:
    """Return the file of a module: the study's own first, then ours."""
    path = study.joinpath(*module.split("."))
    for own in (path / "__init__.py", path.with_suffix(".py")):
        if own.is_file():
            return own
    ours = MODULES.get(module) or PACKAGES.get(module, module)
    if not ours.startswith(HERE):
        return None
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(ours)
        return Path(spec.origin) if spec and spec.origin else None
    return None
