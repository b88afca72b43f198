"""Vectors, queries and exact neighbours: read from the files of data sets, checked, computed. Needs numpy alone, and
h5py where a file is HDF5."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seamark.datasets.files import Seeded
from seamark.errors import Mistake, UserError

Vectors = NDArray[np.float32]
Distances = NDArray[np.float64]
Array = NDArray[Any]

GOLDEN_SEED = 42
"""Seed 0 of a trial is numpy's default_rng(42), with known recalls; seed s is default_rng(42 + s)."""

DEPTH = 100
"""Exact neighbours kept for each query: the largest k of a search."""

BLOCK_VECTORS = 16384
BLOCK_QUERIES = 256
COMPARED_QUERIES = 32
"""Queries whose neighbours are computed to compare them with a ground truth."""
NEAR = 1e-4
"""Largest relative difference of the distances of a ground truth: many were computed in float32."""

ROLES: Mapping[str, tuple[str, ...]] = {
    "vectors": ("base", "train", "vectors"),
    "queries": ("query", "queries", "test"),
    "neighbours": ("groundtruth", "neighbors", "neighbours", "truth"),
}
"""What a file or a data set of HDF5 is, by a part of its name, as TEXMEX and ann-benchmarks have them."""
DTYPES = ("float32", "float16", "uint8", "int8")
ITEMS = {".fvecs": "<f4", ".ivecs": "<i4", ".bvecs": "u1"}


@dataclass(frozen=True, kw_only=True)
class VectorSet:
    """Vectors (n, d), queries (q, d), and the ids (q, depth) of each query's nearest, None where no file has them.
    `files` are the places of these, by role. Of files they are memory maps."""

    vectors: Array
    queries: Array
    neighbours: Array | None
    files: Mapping[str, str]


def drawn(seeded: Seeded) -> tuple[Vectors, Vectors]:
    """Return standard normal vectors and queries, drawn in this order."""
    rng = np.random.default_rng(GOLDEN_SEED + seeded.seed)
    vectors = rng.standard_normal((seeded.rows, seeded.dimensions), dtype=np.float32)
    return vectors, rng.standard_normal((seeded.queries, seeded.dimensions), dtype=np.float32)


def nearest_distances(vectors: Array, queries: Array, depth: int) -> Distances:
    """Return the squared L2 distances of each query's `depth` nearest vectors, ascending, exact to float64."""
    asked = queries.astype(np.float64)
    asked_squared = (asked**2).sum(axis=1, keepdims=True)
    best = np.empty((len(asked), 0))
    for start in range(0, len(vectors), BLOCK_VECTORS):
        block = vectors[start : start + BLOCK_VECTORS].astype(np.float64)
        distances = asked_squared + (block**2).sum(axis=1) - 2.0 * (asked @ block.T)
        best = np.concatenate([best, distances], axis=1)
        if best.shape[1] > depth:
            best = np.partition(best, depth - 1, axis=1)[:, :depth]
    return np.sort(np.maximum(best, 0.0), axis=1)


def shape_of(files: Sequence[Path]) -> tuple[int, int, int]:
    """Return the numbers of vectors, dimensions and queries, not reading all. Raises UserError, OSError."""
    if files[0].suffix.lower() in (".hdf5", ".h5"):
        with _hdf5(files) as file:
            found = {role: part.shape for role, part in _by_role(files[0], file).items()}
    else:
        read = read_vectors(files)
        found = {"vectors": read.vectors.shape, "queries": read.queries.shape}
    return int(found["vectors"][0]), int(found["vectors"][-1]), int(found["queries"][0])


def read_vectors(files: Sequence[Path]) -> VectorSet:
    """Return the arrays of a data set as its files have them. Raises UserError with the place of a mistake."""
    if files[0].suffix.lower() in (".hdf5", ".h5"):
        with _hdf5(files) as file:
            named = _by_role(files[0], file)
            parts = {role: (f"{files[0]}: {part.name[1:]}", part[:]) for role, part in named.items()}
    else:
        named = _by_role(files[0].parent, {path.name: path for path in files})
        parts = {role: (str(path), _array(path)) for role, path in named.items()}
    arrays = {role: array for role, (_, array) in parts.items()}
    return VectorSet(
        vectors=arrays["vectors"],
        queries=arrays["queries"],
        neighbours=arrays.get("neighbours"),
        files={role: place for role, (place, _) in parts.items()},
    )


def checked(read: VectorSet) -> tuple[Vectors, Vectors, Distances]:
    """Return vectors and queries as float32, and the squared L2 distances (q, at least DEPTH where there are so many
    vectors) of the nearest. A ground truth that has fewer, or is not there, is computed.

    Raises UserError for arrays of another shape or type, without rows, with NaN, and for a ground truth that is not
    that of these vectors by L2.
    """
    for role, array in (("vectors", read.vectors), ("queries", read.queries)):
        if array.ndim != 2 or 0 in array.shape:
            raise _wrong(read.files[role], f"has 0 vectors, or is no table: its shape is {array.shape}.")
        if array.dtype.name not in DTYPES:
            raise _wrong(read.files[role], f"has numbers of type {array.dtype}. Types: {', '.join(DTYPES)}.")
        for start in range(0, len(array), BLOCK_VECTORS):
            bad = ~np.isfinite(array[start : start + BLOCK_VECTORS]).all(axis=1)
            if bad.any():
                raise _wrong(f"{read.files[role]}: vector {start + int(bad.argmax()) + 1}", "has NaN or infinity.")
    dimensions, asked = read.vectors.shape[1], read.queries.shape[1]
    if dimensions != asked:
        raise _wrong(read.files["queries"], f"has {asked} dimensions, and the vectors have {dimensions}.")
    vectors, queries = (np.ascontiguousarray(array, np.float32) for array in (read.vectors, read.queries))
    depth = min(DEPTH, len(vectors))
    truth = None if read.neighbours is None else _distances_to(read.neighbours, vectors, queries, read.files)
    if truth is None or truth.shape[1] < depth:
        parts = range(0, len(queries), BLOCK_QUERIES)
        found = [nearest_distances(vectors, queries[at : at + BLOCK_QUERIES], depth) for at in parts]
        return vectors, queries, np.concatenate(found)
    return vectors, queries, truth


def _distances_to(ids: Array, vectors: Vectors, queries: Vectors, files: Mapping[str, str]) -> Distances:
    """Return the distances of a ground truth, ascending, after comparing some with those that are computed."""
    place = files["neighbours"]
    if ids.dtype.kind not in "iu":
        raise _wrong(place, f"has numbers of type {ids.dtype}. Neighbours are ids: int32 or int64.")
    if ids.ndim != 2 or len(ids) != len(queries) or ids.shape[1] == 0:
        raise _wrong(place, f"has the shape {ids.shape}, and there are {len(queries)} queries. Needs a row for each.")
    outside = (ids < 0) | (ids >= len(vectors))
    if outside.any():
        row = int(outside.any(axis=1).argmax())
        name = int(ids[row][outside[row]][0])
        raise _wrong(f"{place}: query {row + 1}", f"names vector {name}, and there are {len(vectors)}, from 0.")
    truth = np.empty(ids.shape)
    for row, (query, names) in enumerate(zip(queries, ids, strict=True)):
        gaps = vectors[names].astype(np.float64) - query.astype(np.float64)
        truth[row] = np.sort((gaps**2).sum(axis=1))
    exact = nearest_distances(vectors, queries[:COMPARED_QUERIES], ids.shape[1])
    apart = ~np.isclose(truth[:COMPARED_QUERIES], exact, rtol=NEAR, atol=NEAR * float(exact.mean()) * 1e-3)
    if apart.any():
        row = int(apart.any(axis=1).argmax())
        rank = int(apart[row].argmax())
        raise _wrong(
            f"{place}: query {row + 1}",
            f"its neighbour {rank + 1} is at the squared distance {truth[row, rank]:.6g}, the true one at"
            f" {exact[row, rank]:.6g}: this is the ground truth of another metric than l2, or of other vectors."
            " Remove it, and it is computed.",
        )
    return truth


def _by_role(place: Path, parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return files, or data sets of an HDF5 file, by their role. Raises UserError for one that is missing, or there
    twice."""
    found: dict[str, Any] = {}
    for role, words in ROLES.items():
        by_word = ([name for name in parts if word in name.lower()] for word in words)
        names = next((names for names in by_word if names), [])
        if len(names) > 1 or (not names and role != "neighbours"):
            what = f"{len(names)} parts ({', '.join(names)})" if names else f"none of its parts ({', '.join(parts)})"
            raise _wrong(str(place), f"{what} has {' or '.join(words)} in its name: one has the {role}.", "missing")
        if names:
            found[role] = parts[names[0]]
    return found


def _hdf5(files: Sequence[Path]) -> Any:
    import h5py  # few runs need it

    path = files[0]
    if len(files) > 1:
        raise _wrong(str(path.parent), f"has {len(files)} files of HDF5, and a data set is one. Name the file.")
    try:
        file = h5py.File(path)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise _wrong(str(path), f"is torn, or no HDF5: {' '.join(str(error).split())[:120]}.", "unreadable") from None
    distance = file.attrs.get("distance", "euclidean")
    distance = distance.decode() if isinstance(distance, bytes) else str(distance)
    if distance not in ("euclidean", "l2"):
        file.close()
        raise _wrong(str(path), f"has the ground truth of '{distance}', and stores are measured by l2 (euclidean).")
    return file


def _array(path: Path) -> Array:
    """Return the array of a file as a memory map."""
    if path.suffix.lower() == ".npy":
        with suppress(ValueError, EOFError):
            array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
            return array
        raise _wrong(str(path), "is torn, or no array of numbers that numpy.save wrote.", "unreadable")
    item = np.dtype(ITEMS[path.suffix.lower()])
    raw = np.memmap(path, mode="r") if path.stat().st_size else np.empty(0, dtype=np.uint8)
    if len(raw) < 4:
        raise _wrong(str(path), "has 0 vectors.", "no_value")
    dimensions = int(raw[:4].view("<i4")[0])
    row_bytes = 4 + dimensions * item.itemsize
    if not 0 < dimensions <= 1 << 20:
        raise _wrong(str(path), f"is no {path.suffix}: its first vector would have {dimensions} dimensions.")
    count = len(raw) // row_bytes
    rows = raw[: count * row_bytes].reshape(count, row_bytes)
    heads = np.ascontiguousarray(rows[:, :4]).view("<i4").ravel()
    if (other := heads != dimensions).any():
        at = int(other.argmax())
        text = f"has {heads[at]} dimensions, and the first one has {dimensions}."
        raise _wrong(f"{path}: vector {at + 1}", text)
    if len(raw) % row_bytes:
        text = f"is torn: {len(raw) % row_bytes} of {row_bytes} bytes are there."
        raise _wrong(f"{path}: vector {count + 1}", text, "unreadable")
    return rows[:, 4:].view(item)


def _wrong(where: str, text: str, code: Any = "wrong_form") -> UserError:
    place, _, path = where.partition(": ")
    return UserError(Mistake(code=code, file=place, path=path or None, text=text))
