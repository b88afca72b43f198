"""What a data set is made of: its files, its digest, its licence, or the seed that it is made from. Reads no rows."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from seamark.errors import did_you_mean
from seamark.model.digest import digest, sha256_of
from seamark.patterns.trace_file import file_of

Kind = Literal["prompts", "vectors"]
ENDINGS: Sequence[tuple[Kind, tuple[str, ...]]] = (
    ("vectors", (".hdf5", ".h5")),
    ("vectors", (".fvecs", ".bvecs", ".ivecs", ".npy")),
    ("prompts", (".parquet",)),
    ("prompts", (".arrow",)),
    ("prompts", (".jsonl",)),
    ("prompts", (".json",)),
)
"""Of a folder the files of the first group that it has are read: others describe them, such as dataset_info.json."""
LICENCES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "LICENCE.txt", "COPYING")
CARD = re.compile(r"\A---\n(?:(?!---).*\n)*?license:[ \t]*(?:\n\s*-\s*)?['\"]?(\w[\w.+-]*)", re.MULTILINE)
"""The licence in the head of a README.md, as data sets of Hugging Face have it."""
SEEDED = "seeded:vectors"


@dataclass(frozen=True, kw_only=True)
class Seeded:
    """Standard normal vectors and queries of a seed, written as `seeded:vectors:rows=20000,dimensions=64`."""

    rows: int = 20000
    dimensions: int = 64
    queries: int = 500
    seed: int = 0

    @staticmethod
    def of(dataset: str) -> "Seeded | None":
        """Return what a data set is made from, None for one of files. Raises ValueError."""
        if not dataset.startswith("seeded:"):
            return None
        rest = dataset.removeprefix(SEEDED)
        if rest == dataset or (rest and not rest.startswith(":")):
            raise ValueError(f"'{dataset}' is no data set of a seed. Write '{SEEDED}:rows=20000,dimensions=64'.")
        values: dict[str, int] = {}
        for part in filter(None, rest.removeprefix(":").split(",")):
            name, _, number = part.partition("=")
            if name not in Seeded.__dataclass_fields__:
                known = ", ".join(Seeded.__dataclass_fields__)
                guess = did_you_mean(name, Seeded.__dataclass_fields__) or f" Known: {known}."
                raise ValueError(f"'{name}' is nothing that {SEEDED} has.{guess}")
            if not number.isdecimal() or (int(number) < 1 and name != "seed"):
                raise ValueError(f"{name} is '{number}', not a whole number of at least {int(name != 'seed')}.")
            values[name] = int(number)
        return Seeded(**values)


def kind_of(dataset: str) -> Kind:
    """Return what a data set has. Raises ValueError for an unknown form, OSError for a missing file."""
    return "vectors" if Seeded.of(dataset) else _group(file_of(dataset))[0]


def files_of(path: Path) -> tuple[Path, ...]:
    """Return the files of a data set: itself, or of a folder those of the first form that it has, in order of their
    names; where some are named `train`, these alone. Raises like `kind_of`."""
    if not path.is_dir():
        return (path,)
    kind, group = _group(path)
    found = tuple(file for file in _inside(path) if file.suffix.lower() in group)
    train = tuple(file for file in found if "train" in file.relative_to(path).as_posix())
    return train if train and kind == "prompts" else found


def digest_of(dataset: str) -> str:
    """Return the SHA-256 of a data set: of its file, of the names and digests of its folder's files, or of the seed.
    Raises like `kind_of`."""
    if seeded := Seeded.of(dataset):
        return digest({"seeded": asdict(seeded)})
    path = file_of(dataset)
    if not path.is_dir():
        return _sha256(path)
    return digest({file.relative_to(path).as_posix(): _sha256(file) for file in files_of(path)})


def licence_of(path: Path) -> str | None:
    """Return the licence that the folder of a data set states: in the head of its README.md, else the first line of
    a file such as LICENSE."""
    folder = path if path.is_dir() else path.parent
    card = folder / "README.md"
    if card.is_file() and (found := CARD.match(card.read_text(encoding="utf-8", errors="replace"))):
        return found[1]
    for name in LICENCES:
        if (folder / name).is_file():
            lines = (folder / name).read_text(encoding="utf-8", errors="replace").split("\n")
            return next((line.strip()[:100] for line in lines if line.strip()), None)
    return None


def _inside(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


def _group(path: Path) -> tuple[Kind, tuple[str, ...]]:
    endings = {path.suffix.lower()}
    if path.is_dir():
        endings = {file.suffix.lower() for file in _inside(path)}
    elif not path.exists():
        raise FileNotFoundError(path)
    for kind, group in ENDINGS:
        if endings & {*group}:
            return kind, group
    known = ", ".join(ending for _, group in ENDINGS for ending in group)
    where = "has no file of a form" if path.is_dir() else f"'{path.suffix}' is no form"
    raise ValueError(f"{where} that is read: {known}.")


def _sha256(path: Path) -> str:
    state = path.stat()
    return _sha256_at(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=256)
def _sha256_at(path: Path, _mtime_ns: int, _size: int) -> str:
    return sha256_of(path)
