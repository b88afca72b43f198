"""Commands of a study's own that stand before the machine's of the same name in the PATH of its run."""

import os
from collections.abc import Mapping
from pathlib import Path

from seamark.storage.paths import write_text


def folder_of(root: Path) -> Path:
    """Return the folder of a study's own commands."""
    return root / ".seamark" / "bin"


def stand_before(root: Path, commands: Mapping[str, str]) -> None:
    """Write shell scripts by name, and put their folder first in the PATH of this process and of what it starts."""
    folder = folder_of(root)
    for name, text in commands.items():
        write_text(folder / name, text)
        (folder / name).chmod(0o755)
    os.environ["PATH"] = os.pathsep.join([str(folder), path_without(root)])


def path_without(root: Path) -> str:
    """Return the PATH of this process without the study's own commands."""
    words = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(word for word in words if Path(word) != folder_of(root))
