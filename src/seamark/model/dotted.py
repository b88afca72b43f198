"""A user's own objects by dotted path, `module:name`: load patterns, metrics and checks in a study's folder."""

import hashlib
import os
import re
import sys
from importlib import import_module
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
        own = [key for key, each in names.items() if isinstance(each, form)]
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
            content = b"".join(file.name.encode() + b"\0" + file.read_bytes() for file in files)
        else:
            content = Path(spec.origin).read_bytes() if spec and spec.origin else b""
    except (ImportError, OSError, ValueError):
        content = b""
    return f"{path} {hashlib.sha256(content).hexdigest()[:12]}"


def search_in(folder: Path) -> None:
    """Make modules of a study's folder importable, by this process and its children, after all others."""
    entry = str(folder.resolve())
    if entry not in sys.path:
        sys.path.append(entry)
    inherited = os.environ.get("PYTHONPATH", "")
    if entry not in inherited.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (inherited, entry)))
