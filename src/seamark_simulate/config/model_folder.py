"""Reader of the folder of a language model, as Hugging Face libraries write it: config.json and the headers of its
safetensors files. Loads no weights and needs no network.

A safetensors file begins with the length of its header in 8 bytes (little endian) and the header, a JSON object from
each tensor's name to its type, shape and place. The form is described in the README of huggingface/safetensors.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from os import environ
from pathlib import Path, PurePosixPath

from seamark.config.yaml_source import shown
from seamark.errors import UserError
from seamark.storage.codec import parse_object
from seamark_simulate.simulation.gpu_memory import SizedModel
from seamark_simulate.simulation.model_architecture import UnsizedError, architecture_of

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
WHOLE = "model.safetensors"
LARGEST_HEADER = 100_000_000
"""The limit of the safetensors library itself."""
LENGTH_BYTES = 8
BITS: Mapping[str, int] = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
"""Bits of an element, by the names of the safetensors library."""
LAYER = re.compile(r"model\.layers\.(\d+)\.")
DOWNLOAD = "Download the model again."


@dataclass(frozen=True, kw_only=True)
class ModelFolder(SizedModel):
    """A model as its folder describes it."""

    path: Path


def read_model_folder(folder: Path) -> ModelFolder:
    """Return the architecture and the sizes of the weights in a folder.

    Raises UnsizedError for a model whose files do not tell its size: an architecture that is not known, or weights in
    another form. Raises UserError, with a line for each file, for files that are damaged or missing.
    """
    document = _object(folder / CONFIG, "the folder of a model has one. Name that folder.")
    try:
        architecture = architecture_of(document)
    except UnsizedError as error:
        raise UnsizedError(f"{shown(folder / CONFIG)} {error}") from None
    except ValueError as error:
        raise UserError(f"{shown(folder / CONFIG)}: {error}. {DOWNLOAD}") from None
    sizes: dict[str, int] = {}
    mistakes = []
    for path in _weight_files(folder):
        try:
            _add_sizes(path, architecture.layers, sizes)
        except ValueError as error:
            mistakes.append(f"{shown(path)}: {error}. {DOWNLOAD}")
    if mistakes:
        raise UserError(*mistakes)
    return ModelFolder(path=folder, architecture=architecture, weights=sizes)


def find_model_folder(
    model: str, binds: tuple[str, ...] = (), environment: Mapping[str, str] = environ
) -> Path | None:
    """Return the folder of a server's model on this machine, None if it is not here.

    `model` is an absolute path, inside a container of `binds` (`outside:/inside`) if one of them has it, or the name
    of a model in the cache of Hugging Face.
    """
    if not model.startswith("/"):
        return _cached(model, environment)
    for bind in binds:
        outside, inside = bind.split(":")[:2]
        if PurePosixPath(model).is_relative_to(inside):
            outside = re.sub(r"\$\{?(\w+)\}?", lambda match: environment.get(match[1], match[0]), outside)
            return _if_model(Path(outside, PurePosixPath(model).relative_to(inside)))
    return _if_model(Path(model))


def _if_model(folder: Path) -> Path | None:
    """Return the folder if it is that of a model and can be entered, else None."""
    try:
        return folder if (folder / CONFIG).is_file() else None
    except OSError:
        return None


def _cached(name: str, environment: Mapping[str, str]) -> Path | None:
    """Return the folder of a model in the cache of Hugging Face, where its branch `main` is; None if it is not
    there."""
    home = environment.get("HF_HOME") or str(Path(environment.get("HOME", "/"), ".cache", "huggingface"))
    cache = Path(environment.get("HF_HUB_CACHE") or Path(home, "hub"))
    try:
        repository = cache / f"models--{name.replace('/', '--')}"
        revision = (repository / "refs" / "main").read_text(encoding="utf-8").strip()
        return _if_model(repository / "snapshots" / revision)
    except (OSError, ValueError):
        return None


def _object(path: Path, hint: str) -> dict[str, object]:
    """Return the JSON object in a file. Raises UserError."""
    try:
        return parse_object(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{shown(path)}: no such file; {hint}") from None
    except OSError as error:
        raise UserError(f"{shown(path)}: cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise UserError(f"{shown(path)}: {error}. {DOWNLOAD}") from None


def _weight_files(folder: Path) -> list[Path]:
    """Return the files that a server reads the weights from: those of the index, else `model.safetensors`, else all.

    Raises UnsizedError without any, UserError for an index that is damaged or files of it that are missing.
    """
    if (folder / INDEX).is_file():
        places = _object(folder / INDEX, "").get("weight_map")
        if not isinstance(places, dict) or not places or not all(isinstance(name, str) for name in places.values()):
            raise UserError(f"{shown(folder / INDEX)}: weight_map: expected the file of each tensor. {DOWNLOAD}")
        names = sorted(set(places.values()))
        if lacking := [name for name in names if not (folder / name).is_file()]:
            raise UserError(
                f"{shown(folder / INDEX)}: {len(lacking)} of its {len(names)} files are missing, such as"
                f" {lacking[0][:80]!r}. {DOWNLOAD}"
            )
        return [folder / name for name in names]
    files = [folder / WHOLE] if (folder / WHOLE).is_file() else sorted(folder.glob("*.safetensors"))
    if not files:
        raise UnsizedError(f"{shown(folder)} has no safetensors files")
    return files


def _add_sizes(path: Path, layers: int, sizes: dict[str, int]) -> None:
    """Add the bytes of a file's tensors by type. Raises ValueError for a file that is damaged or not whole.

    Layers beyond those of the model, which predict further tokens, are left out: a server does not load them.
    """
    header, data_bytes = _header(path)
    end = 0
    for name, dtype, count, stop in _tensors(header):
        end = max(end, stop)
        layer = LAYER.match(name)
        if layer is None or int(layer[1]) < layers:
            sizes[dtype] = sizes.get(dtype, 0) + count
    if end > data_bytes:
        raise ValueError(f"is cut off: its header describes {end} bytes of tensors, and {data_bytes} are there")


def _header(path: Path) -> tuple[dict[str, object], int]:
    """Return the header of a safetensors file, and the number of bytes after it. Raises ValueError."""
    try:
        with path.open("rb") as file:
            whole = path.stat().st_size
            length = int.from_bytes(file.read(LENGTH_BYTES), "little")
            if length > min(LARGEST_HEADER, whole - LENGTH_BYTES):
                raise ValueError(f"is no safetensors file, or cut off: a header of {length} bytes in {whole}")
            text = file.read(length)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    try:
        return parse_object(text.decode("utf-8")), whole - LENGTH_BYTES - length
    except ValueError as error:
        raise ValueError(f"its header is damaged: {error}") from None


def _tensors(header: Mapping[str, object]) -> Iterator[tuple[str, str, int, int]]:
    """Yield name, type, bytes and end of each tensor. Raises ValueError for an entry that contradicts itself."""
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        form = entry if isinstance(entry, dict) else {}
        dtype, shape, offsets = form.get("dtype"), _counts(form.get("shape")), _counts(form.get("data_offsets"))
        if not isinstance(dtype, str) or shape is None or offsets is None or len(offsets) != 2:
            raise ValueError(f"its header is damaged: {name[:80]!r} needs dtype, shape and data_offsets")
        count = offsets[1] - offsets[0]
        if count < 0 or (dtype in BITS and prod(shape) * BITS[dtype] != 8 * count):
            what = f"{name[:80]!r} of {dtype[:20]!r} {str(shape)[:40]}"
            raise ValueError(f"its header is damaged: {what} has {count} bytes")
        yield name, dtype, count, offsets[1]


def _counts(value: object) -> list[int] | None:
    """Return a list of whole numbers from 0, None for anything else."""
    return value if isinstance(value, list) and all(type(count) is int and count >= 0 for count in value) else None
