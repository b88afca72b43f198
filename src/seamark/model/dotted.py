"""A user's own objects by dotted path, `module:name`: load patterns, metrics and checks in a study's folder."""

import hashlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from seamark.errors import did_you_mean

Form = TypeVar("Form")
DOTTED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_dotted(text: str) -> bool:
    """Whether a text has the form `module:name`."""
    return DOTTED.fullmatch(text) is not None


def resolved(path: str, form: type[Form]) -> Form:
    """Return the object of that type at `module:name`. Raises ValueError with the reason if there is none."""
    module, _, name = path.partition(":")
    try:
        names = vars(import_module(module))
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise ValueError(
                f"'{path}' cannot be imported: there is no module '{error.name}'. Correct the name, or put the file"
                " into the study's folder"
            ) from None
        raise ValueError(f"'{path}' cannot be imported: {error}") from None
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}"
        raise ValueError(f"'{path}' cannot be imported: {why}. `python -c 'import {module}'` shows where") from None
    if not isinstance(names.get(name), form):
        own = [key for key, value in names.items() if isinstance(value, form)]
        guess = did_you_mean(name, own) or f" It has {', '.join(own)}." if own else ""
        problem = f"'{name}' in '{module}' is no {form.__name__}" if name in names else f"'{module}' has no '{name}'"
        raise ValueError(f"{problem}.{guess}".removesuffix("."))
    return names[name]  # type: ignore[no-any-return]


def mark_of(path: str) -> str:
    """Return a dotted path with the digest of its module's file: a changed file is another object. A path without an
    object, `package`, has the digest of all files of the package."""
    module, colon, _ = path.partition(":")
    try:
        spec = find_spec(module)
        inside = spec.submodule_search_locations if spec and not colon else None
        if inside:
            files = sorted(file for root in inside for file in Path(root).rglob("*.py"))
        else:
            files = [Path(spec.origin)] if spec and spec.origin else []
        states = tuple((file, file.stat().st_mtime_ns, file.stat().st_size) for file in files)
        digest = _digest(states, bool(inside))
    except (ImportError, OSError, ValueError):
        digest = _digest((), False)
    return f"{path} {digest}"


@lru_cache(maxsize=256)
def _digest(files: tuple[tuple[Path, int, int], ...], named: bool) -> str:
    """Return the digest of the contents of files, and of their names if `named`. They are read once for each time of
    change and size: a study has the same few marks for each of its trials."""
    contents = ((file.name.encode() + b"\0" if named else b"") + file.read_bytes() for file, _, _ in files)
    return hashlib.sha256(b"".join(contents)).hexdigest()[:12]


def search_in(folder: Path) -> None:
    """Make modules of a study's folder importable, by this process and its children, after all others."""
    entry = str(folder.resolve())
    if entry not in sys.path:
        sys.path.append(entry)
    inherited = os.environ.get("PYTHONPATH", "")
    if entry not in inherited.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (inherited, entry)))


class _Told(MetaPathFinder):
    """Finds nothing: says which modules of a folder are looked for."""

    def __init__(self, folder: Path, say: Callable[[str], object]) -> None:
        self._folder, self._say = folder.resolve(), say

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> None:
        spec = None if path is not None else PathFinder.find_spec(fullname)
        places = {} if spec is None else {spec.origin, *(spec.submodule_search_locations or ())}
        if self._folder in {Path(location).parent for location in places if location}:
            self._say(fullname)


def tell_imports(folder: Path, say: Callable[[str], object]) -> None:
    """Say the name of each top-level module of a study's folder before this process imports it."""
    sys.meta_path[:] = [_Told(folder, say), *(finder for finder in sys.meta_path if not isinstance(finder, _Told))]
