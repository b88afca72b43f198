"""Vectors, queries and neighbours of data sets: read from their files, and checked."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seamark.datasets.neighbours import BLOCK_VECTORS, DEPTH, Distances, Vectors, nearest_distances
from seamark.errors import Mistake, SiteError, UserError

Array = NDArray[Any]
Parts = Mapping[str, tuple[str, Array]]
"""Place and array of each role: `vectors` (n, d), `queries` (q, d), and where a file has them `neighbours`, the ids
(q, depth) of each query's nearest. Those of a folder are memory maps."""

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
HDF5 = (".hdf5", ".h5")
DTYPES = ("float32", "float16", "uint8", "int8")
ITEMS = {".fvecs": "<f4", ".ivecs": "<i4", ".bvecs": "u1"}


def shape_of(files: Sequence[Path]) -> tuple[int, int, int]:
    """Return the numbers of vectors, dimensions and queries, not reading all. Raises UserError, OSError."""
    if files[0].suffix.lower() in HDF5:
        with _hdf5(files) as file:
            shapes = {role: part.shape for role, part in _by_role(files[0], file).items()}
    else:
        shapes = {role: array.shape for role, (_, array) in read_vectors(files).items()}
    return int(shapes["vectors"][0]), int(shapes["vectors"][1]), int(shapes["queries"][0])


def read_vectors(files: Sequence[Path]) -> Parts:
    """Return the arrays of a data set as its files have them. Raises UserError with the place of a mistake."""
    if files[0].suffix.lower() in HDF5:
        with _hdf5(files) as file:
            named = _by_role(files[0], file)
            return {role: (f"{files[0]}: {part.name[1:]}", part[:]) for role, part in named.items()}
    named = _by_role(files[0].parent, {path.name: path for path in files})
    return {role: (str(path), _array(path)) for role, path in named.items()}


def checked(parts: Parts) -> tuple[Vectors, Vectors, Distances]:
    """Return vectors and queries as float32, and the squared L2 distances (q, at least DEPTH where there are so many
    vectors) of the nearest. A ground truth that has fewer, or is not there, is computed.

    Raises UserError for arrays of another shape or type, without rows, with NaN, and for a ground truth that is not
    that of these vectors by L2.
    """
    for place, array in (parts["vectors"], parts["queries"]):
        if 0 in array.shape:
            raise _wrong(place, f"has 0 vectors: its shape is {array.shape}.", "no_value")
        if array.dtype.name not in DTYPES:
            raise _wrong(place, f"has numbers of type {array.dtype}. Types: {', '.join(DTYPES)}.")
        for start in range(0, len(array), BLOCK_VECTORS):
            bad = ~np.isfinite(array[start : start + BLOCK_VECTORS]).all(axis=1)
            if bad.any():
                raise _wrong(f"{place}: vector {start + int(bad.argmax()) + 1}", "has NaN or infinity.")
    vectors, queries = (np.ascontiguousarray(parts[role][1], np.float32) for role in ("vectors", "queries"))
    if vectors.shape[1] != queries.shape[1]:
        text = f"has {queries.shape[1]} dimensions, and the vectors have {vectors.shape[1]}."
        raise _wrong(parts["queries"][0], text)
    depth = min(DEPTH, len(vectors))
    truth = _distances_to(*parts["neighbours"], vectors, queries) if "neighbours" in parts else None
    if truth is None or truth.shape[1] < depth:
        starts = range(0, len(queries), BLOCK_QUERIES)
        found = [nearest_distances(vectors, queries[at : at + BLOCK_QUERIES], depth) for at in starts]
        truth = np.concatenate(found)
    return vectors, queries, truth


def _distances_to(place: str, ids: Array, vectors: Vectors, queries: Vectors) -> Distances:
    """Return the distances of a ground truth, ascending, after comparing some with those that are computed."""
    if ids.dtype.kind not in "iu":
        raise _wrong(place, f"has numbers of type {ids.dtype}. Neighbours are ids: int32 or int64.")
    if len(ids) != len(queries) or not 0 < ids.shape[1] <= len(vectors):
        sizes = f"{len(queries)} queries of {len(vectors)} vectors. It needs a row for each query."
        raise _wrong(place, f"has the shape {ids.shape}, and there are {sizes}")
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
        for name in names:
            found[role] = parts[name]
            if not isinstance(parts[name], Path) and getattr(parts[name], "ndim", 0) != 2:
                raise _wrong(f"{place}: {name}", "is no table of vectors.")
    return found


def _hdf5(files: Sequence[Path]) -> Any:
    path = files[0]
    try:
        import h5py  # few runs need it
    except ImportError as cause:
        raise SiteError(f"{path}: reading HDF5 needs the package h5py, which is not here.") from cause
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
            if array.ndim == 2:
                return array
        raise _wrong(str(path), "is torn, or no table of numbers that numpy.save wrote.", "unreadable")
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
