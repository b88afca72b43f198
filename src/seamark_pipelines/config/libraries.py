"""Which pipelines need libraries that the base environment does not have, by the source of their stages: nothing is
imported."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from seamark_pipelines.flow.classes import absolute, files_of, tree_of
from seamark_pipelines.flow.source_names import HERE, LIBRARIES, PACKAGES
from seamark_pipelines.model.graph import PipelineModel

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
    path = next(files_of(module, study), None)
    if path is None or path in seen:
        return None
    tree = tree_of(path)
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))] if tree else []
    for node in imports:
        if isinstance(node, ast.ImportFrom) and name in [alias.asname or alias.name for alias in node.names]:
            return _library(absolute(node, module, path), name, study, seen)
    seen.add(path)
    for node in imports:
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            package = absolute(node, module, path)
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
