"""Vectors are read in the forms of TEXMEX and ann-benchmarks; what is wrong in them is named with its place."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from seamark.datasets.files import files_of
from seamark.datasets.vectors import checked, read_vectors, shape_of
from seamark.drivers.vectors.dataset import Dataset, recall_at_k
from seamark.errors import Mistake, UserError

DRAWN = np.random.default_rng(3)
VECTORS = DRAWN.integers(0, 6, (300, 4)).astype(np.float32)
"""Of few whole numbers: full of ties, and exact in every form."""
QUERIES = DRAWN.integers(0, 6, (8, 4)).astype(np.float32)
SQUARED = ((QUERIES[:, None].astype(np.float64) - VECTORS) ** 2).sum(axis=2)
NEAREST = np.argsort(SQUARED, axis=1, kind="stable")[:, :100]
TRUTH = np.sort(SQUARED, axis=1)[:, :100]


def vecs(path: Path, array: np.ndarray, dtype: str) -> None:
    """Write a file as http://corpus-texmex.irisa.fr describes it: the dimension before each vector."""
    rows = [np.int32(array.shape[1]).tobytes() + row.astype(dtype).tobytes() for row in array]
    path.write_bytes(b"".join(rows))


def texmex(folder: Path, ending: str = "fvecs", dtype: str = "<f4", **arrays: np.ndarray) -> Path:
    parts = {"base": VECTORS, "query": QUERIES, "groundtruth": NEAREST} | arrays
    folder.mkdir(exist_ok=True)
    for name, array in parts.items():
        neighbours = name == "groundtruth"
        vecs(folder / f"set_{name}.{'ivecs' if neighbours else ending}", array, "<i4" if neighbours else dtype)
    return folder


def hdf5(path: Path, distance: str = "euclidean", **arrays: np.ndarray) -> Path:
    parts = {"train": VECTORS, "test": QUERIES, "neighbors": NEAREST, "distances": TRUTH**0.5} | arrays
    with h5py.File(path, "w") as file:
        file.attrs["distance"] = distance
        for name, array in parts.items():
            file[name] = array
    return path


def npy(folder: Path, **arrays: np.ndarray) -> Path:
    folder.mkdir(exist_ok=True)
    for name, array in ({"base": VECTORS, "query": QUERIES} | arrays).items():
        np.save(folder / f"{name}.npy", array)
    return folder


def mistake(path: Path) -> Mistake:
    with pytest.raises(UserError) as refused:
        checked(read_vectors(files_of(path)))
    [only] = refused.value.mistakes
    return only


@pytest.mark.covers("E-FR23")
@pytest.mark.parametrize("form", ["fvecs", "bvecs", "hdf5", "npy", "short"])
def test_each_form_gives_the_vectors_and_the_exact_distances(form, tmp_path):
    path = {
        "fvecs": lambda: texmex(tmp_path / "set"),
        "bvecs": lambda: texmex(tmp_path / "set", "bvecs", "u1"),
        "hdf5": lambda: hdf5(tmp_path / "set.hdf5"),
        "npy": lambda: npy(tmp_path / "set"),  # without a ground truth
        "short": lambda: texmex(tmp_path / "set", groundtruth=NEAREST[:, :10]),  # too few for recall at 100
    }[form]()
    assert shape_of(files_of(path)) == (300, 4, 8)
    vectors, queries, truth = checked(read_vectors(files_of(path)))
    assert (vectors.dtype, queries.dtype) == (np.float32, np.float32)
    assert np.array_equal(vectors, VECTORS)
    assert np.array_equal(queries, QUERIES)
    np.testing.assert_allclose(truth, TRUTH, atol=1e-9)


@pytest.mark.covers("E-FR23")
def test_each_of_several_vectors_at_the_kth_distance_is_right_and_one_beyond_it_is_not(tmp_path):
    vectors, queries, truth = checked(read_vectors(files_of(texmex(tmp_path / "set"))))
    data = Dataset(vectors=vectors, queries=queries, truth=truth)
    tied = [np.flatnonzero(row <= row[np.argsort(row)[9]]) for row in SQUARED]
    assert max(map(len, tied)) > 10
    assert recall_at_k(data, np.array([ids[-10:] for ids in tied]), 10) == 1.0
    beyond = [np.argsort(row, kind="stable")[200:210] for row in SQUARED]
    assert recall_at_k(data, np.array(beyond), 10) == 0.0


def test_the_ground_truth_of_another_metric_is_refused_by_its_name_and_by_its_distances(tmp_path):
    product = np.argsort(-(QUERIES @ VECTORS.T), axis=1)[:, :100]
    by_name = mistake(hdf5(tmp_path / "angular.hdf5", distance="angular"))
    assert (by_name.file, by_name.path) == (str(tmp_path / "angular.hdf5"), None)
    unnamed = mistake(hdf5(tmp_path / "product.hdf5", neighbors=product))
    assert unnamed.path == "neighbors: query 1"
    in_folder = mistake(texmex(tmp_path / "set", groundtruth=product))
    assert (in_folder.file, in_folder.path) == (str(tmp_path / "set" / "set_groundtruth.ivecs"), "query 1")


def edited(array: np.ndarray, row: int, value: float) -> np.ndarray:
    other = array.copy()
    other[row, 1] = value
    return other


@pytest.mark.covers("E-VAL")
@pytest.mark.parametrize(
    ("arrays", "name", "place"),
    [
        ({"query": QUERIES[:, :3]}, "query.fvecs", None),
        ({"base": edited(VECTORS, 6, np.nan)}, "base.fvecs", "vector 7"),
        ({"query": edited(QUERIES, 2, np.inf)}, "query.fvecs", "vector 3"),
        ({"base": VECTORS[:0]}, "base.fvecs", None),
        ({"query": QUERIES[:0]}, "query.fvecs", None),
        ({"groundtruth": NEAREST[:5]}, "groundtruth.ivecs", None),
        ({"groundtruth": edited(NEAREST, 1, 300)}, "groundtruth.ivecs", "query 2"),
        ({"groundtruth": edited(NEAREST, 4, -1)}, "groundtruth.ivecs", "query 5"),
    ],
)
def test_a_wrong_array_is_one_line_with_its_place(arrays, name, place, tmp_path):
    found = mistake(texmex(tmp_path / "set", **arrays))
    assert (found.file, found.path) == (str(tmp_path / "set" / f"set_{name}"), place)


@pytest.mark.parametrize("other", ["float64", "complex64", "int64", "U3"])
def test_another_type_of_numbers_is_refused(other, tmp_path):
    assert mistake(npy(tmp_path / "set", base=VECTORS.astype(other))).file == str(tmp_path / "set" / "base.npy")
    assert mistake(npy(tmp_path / "set", truth=NEAREST.astype(float))).file == str(tmp_path / "set" / "truth.npy")


def test_a_torn_file_and_a_vector_of_another_dimension_are_named(tmp_path):
    base = texmex(tmp_path / "set") / "set_base.fvecs"
    whole = base.read_bytes()
    base.write_bytes(whole[:-3])
    assert (mistake(base.parent).code, mistake(base.parent).path) == ("unreadable", "vector 300")
    base.write_bytes(whole[:40] + np.int32(5).tobytes() + whole[44:])
    assert mistake(base.parent).path == "vector 3"
    array = npy(tmp_path / "arrays") / "base.npy"
    array.write_bytes(array.read_bytes()[:-3])
    assert (mistake(array.parent).file, mistake(array.parent).code) == (str(array), "unreadable")
    (tmp_path / "torn.hdf5").write_bytes(hdf5(tmp_path / "whole.hdf5").read_bytes()[:200])
    assert mistake(tmp_path / "torn.hdf5").code == "unreadable"


def test_a_part_that_is_missing_or_there_twice_is_named(tmp_path):
    folder = texmex(tmp_path / "set")
    vecs(folder / "other_base.fvecs", VECTORS, "<f4")
    assert mistake(folder).code == "missing"
    (folder / "other_base.fvecs").unlink()
    (folder / "set_query.fvecs").unlink()
    assert mistake(folder).code == "missing"
