"""Classes of stages and schedulers as their source has them: nothing is imported."""

import ast
import importlib.util
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from seamark.errors import did_you_mean
from seamark_pipelines.flow.source_names import HERE, MODULES, PACKAGES

ANY = "*"
"""Stands for what the source does not tell, such as methods of a library's class."""
ROOT = Path(__file__).parents[1]
WITHOUT_METHODS = ("abc", "typing")
"""Modules whose classes bring no method that a stage or scheduler needs."""


def methods_of(component: str, study: Path) -> set[str]:
    """Return the methods of a class and its bases, ANY among them where the source does not tell; those that only
    raise NotImplementedError are none. Raises ValueError for a class that is not there, with the nearest name."""
    module, _, name = component.rpartition(".")
    if not list(files_of(module, study)):
        first = module.partition(".")[0]
        if first in PACKAGES or importlib.util.find_spec(first) is None:
            guess = did_you_mean(module, MODULES)
            raise ValueError(f"'{component}': there is no module '{module}'.{guess}")
        return {ANY}
    names: list[str] = []
    found = _methods(module, name, study, names, set())
    if found is None:
        raise ValueError(f"'{module}' has no '{name}'.{did_you_mean(name, names)}")
    return found


def _methods(module: str, name: str, study: Path, names: list[str], seen: set[tuple[str, str]]) -> set[str] | None:
    """Return the methods of a class, None for a name that its module does not have; `names` gets those it has."""
    if (module, name) in seen:
        return {ANY}
    seen.add((module, name))
    if module in WITHOUT_METHODS:
        return set()
    files = list(files_of(module, study))
    if not files:
        return {ANY}
    for file in files:
        tree = tree_of(file)
        if tree is None:
            return {ANY}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                names.append(node.name)
                if node.name == name:
                    return _of_class(node, module, study, seen)
            elif isinstance(node, ast.ImportFrom):
                source = absolute(node, module, file)
                for alias in node.names:
                    names.append(alias.asname or alias.name)
                    if names[-1] == name:
                        return _methods(source, alias.name, study, [], seen)
                    if alias.name == ANY and (found := _methods(source, name, study, names, seen)) is not None:
                        return found
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name:
                return {ANY}
    return None


def _of_class(node: ast.ClassDef, module: str, study: Path, seen: set[tuple[str, str]]) -> set[str]:
    found: set[str] = set()
    for base in node.bases:
        own = _methods(module, base.id, study, [], seen) if isinstance(base, ast.Name) else {ANY}
        found |= set() if isinstance(base, ast.Name) and base.id == "object" else {ANY} if own is None else own
    for inner in node.body:
        if isinstance(inner, ast.FunctionDef):
            last = inner.body[-1]
            raised = last.exc if isinstance(last, ast.Raise) else None
            raised = raised.func if isinstance(raised, ast.Call) else raised
            if not (isinstance(raised, ast.Name) and raised.id == "NotImplementedError"):
                found.add(inner.name)
        elif isinstance(inner, ast.Assign):
            found |= {target.id for target in inner.targets if isinstance(target, ast.Name)}
    return found


def words_of(module: str, study: Path, seen: set[Path] | None = None) -> set[str] | None:
    """Return the texts in the source of a module of ours and of those that it imports, the keys that it reads among
    them; None for a module that is not ours."""
    seen = set() if seen is None else seen
    path = next(files_of(module, study), None)
    tree = None if path is None or path in seen or ROOT not in path.parents else tree_of(path)
    if path is None or tree is None:
        return None
    seen.add(path)
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        elif isinstance(node, ast.ImportFrom):
            found |= words_of(absolute(node, module, path), study, seen) or set()
    return found


def tree_of(path: Path) -> ast.Module | None:
    """Return the source of a file, None for one that cannot be parsed."""
    with suppress(OSError, SyntaxError, ValueError):
        return _parsed(path, path.stat().st_mtime_ns)
    return None


@lru_cache(maxsize=256)
def _parsed(path: Path, changed_ns: int) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def absolute(node: ast.ImportFrom, module: str, path: Path) -> str:
    """Return the module that an import names, where it is relative to the one that it stands in."""
    if not node.level:
        return node.module or ""
    parts = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def files_of(module: str, study: Path) -> Iterator[Path]:
    """Yield the files that have the names of a module: the study's own first, then ours, which a package has too."""
    path = study.joinpath(*module.split("."))
    for own in (path / "__init__.py", path.with_suffix(".py")):
        if own.is_file():
            yield own
            if module in PACKAGES:
                break
            return
    ours = MODULES.get(module) or PACKAGES.get(module, module)
    if ours.startswith(HERE):
        with suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(ours)
            if spec and spec.origin:
                yield Path(spec.origin)
