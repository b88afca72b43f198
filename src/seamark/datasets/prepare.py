"""Data sets in the form that drivers read, made once below the cache folder, each in a folder of its content's name.

Prompts are `prompts.jsonl`, a list of [role, text] a line; vectors are `vectors.npy`, `queries.npy` and `truth.npy`.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from os import getpid
from pathlib import Path
from typing import Any

from seamark.datasets.files import Kind, Seeded, digest_of, files_of, kind_of, licence_of
from seamark.errors import Mistake, SiteError, UserError
from seamark.model.digest import sha256_of
from seamark.model.results.trial_meta import DatasetRecord
from seamark.model.service import Service, Value
from seamark.patterns.trace_file import file_of
from seamark.storage.documents import read_or_none, write

FORM = 1
"""Part of a folder's name: what another version of Seamark has made of the same files is made again."""
RECORD = "dataset.json"
PROMPTS = "prompts.jsonl"
ARRAYS = ("vectors", "queries", "truth")


def prepared(dataset: str, root: Path, kind: Kind | None = None) -> tuple[Path, DatasetRecord]:
    """Return the folder of a data set below `root` and its record; it is made where it is not there.

    `dataset` is a file, a folder, or `seeded:vectors:...`; `kind` is what it must have. Raises UserError with file
    and place of each mistake.
    """
    path = Path(dataset) if dataset.startswith("seeded:") else file_of(dataset)
    try:
        has = kind_of(dataset)
        if kind not in (None, has):
            raise ValueError(f"has {has}, and {kind} are needed.")
        sha = digest_of(dataset)
    except FileNotFoundError:
        text = "no such data set. Correct the path; it begins in the folder where bench is called."
        raise UserError(Mistake(code="no_such_file", file=dataset, text=text)) from None
    except OSError as error:
        raise UserError(Mistake(code="unreadable", file=dataset, text=f"cannot be read: {error.strerror}.")) from None
    except ValueError as error:
        raise UserError(Mistake(code="wrong_form", file=dataset, text=str(error))) from None
    folder = root / f"{has}-{sha[:24]}.{FORM}"
    record = read_or_none(folder / RECORD, DatasetRecord)
    if record is None:
        record = _made(dataset, path, folder, DatasetRecord(kind=has, sha256=sha))
    return folder, replace(record, name=path.name, licence=None if Seeded.of(dataset) else licence_of(path))


def named_in(service: Service, settings: Mapping[str, Value]) -> Mapping[str, tuple[str, Kind]]:
    """Return the data sets that settings of a service name, and what each must have, by setting."""
    kinds = {setting.name: setting.dataset for setting in service.settings if setting.dataset}
    return {name: (str(settings[name]), kind) for name, kind in kinds.items() if settings.get(name) is not None}


def prepared_settings(service: Service, settings: Mapping[str, Value], root: Path) -> Mapping[str, Value]:
    """Return settings as a driver has them: a data set as the folder that it is read from. Raises UserError."""
    named = named_in(service, settings)
    return {**settings, **{name: str(prepared(path, root, kind)[0]) for name, (path, kind) in named.items()}}


def records_in(root: Path) -> Iterator[tuple[Path, DatasetRecord | None]]:
    """Yield the folder of each data set below `root`, in the order of names; None for a record that is damaged."""
    for path in sorted(root.glob(f"*.{FORM}")):
        yield path, read_or_none(path / RECORD, DatasetRecord)


def damage_of(folder: Path, record: DatasetRecord | None) -> str | None:
    """Return the first file of a data set that is not as it was made, None if all are."""
    if record is None or not record.files:
        return RECORD
    for name, sha in record.files.items():
        if not (folder / name).is_file() or sha256_of(folder / name) != sha:
            return name
    return None


def _made(dataset: str, path: Path, folder: Path, record: DatasetRecord) -> DatasetRecord:
    """Make the folder of a data set beside its place, and move it there: a killed run leaves nothing that is read."""
    record, content = _read(dataset, path, record)
    part = folder.with_name(f".{folder.name}.{getpid()}.tmp")
    try:
        part.mkdir(parents=True)
        for name, rows in content.items():
            if isinstance(rows, list):
                with (part / name).open("w", encoding="utf-8") as file:
                    file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            else:
                import numpy as np

                np.save(part / name, rows)
        record = replace(record, name=path.name, files={name: sha256_of(part / name) for name in content})
        write(part / RECORD, record)
        if folder.exists() and read_or_none(folder / RECORD, DatasetRecord) is None:
            shutil.rmtree(folder)
        try:
            part.rename(folder)
        except OSError:  # another run has made it meanwhile
            if read_or_none(folder / RECORD, DatasetRecord) is None:
                raise
    except OSError as error:
        why = f"{error.strerror}. Free space, or set paths.data of the site."
        raise SiteError(f"{folder.parent}: a data set cannot be kept there: {why}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return record


def _read(dataset: str, path: Path, record: DatasetRecord) -> tuple[DatasetRecord, dict[str, Any]]:
    """Return the facts of a data set, and what its files have: rows of prompts, or arrays."""
    if record.kind == "prompts":
        from seamark.datasets.prompts import read_prompts

        read = read_prompts(files_of(path))
        return replace(record, forms=read.forms, rows=len(read.rows), left_out=read.left_out), {PROMPTS: read.rows}
    from seamark.datasets.neighbours import drawn
    from seamark.datasets.vectors import checked, read_vectors

    files: tuple[Path, ...] = ()
    if seeded := Seeded.of(dataset):
        vectors, queries = drawn(**asdict(seeded))
        arrays = checked({"vectors": (dataset, vectors), "queries": (dataset, queries)})
    else:
        files = files_of(path)
        arrays = checked(read_vectors(files))
    forms = tuple(dict.fromkeys(file.suffix[1:] for file in files)) or ("seeded",)
    rows, dimensions = arrays[0].shape
    record = replace(record, forms=forms, rows=rows, dimensions=dimensions, queries=len(arrays[1]))
    return record, {f"{name}.npy": array for name, array in zip(ARRAYS, arrays, strict=True)}
