"""Documents of the results are read by one reader: what is not as it must be is named with file and remedy."""

import json
from pathlib import Path
from typing import Any

import pytest

from seamark.errors import UserError
from seamark.storage.paths import DamagedFileError, is_damaged, put_away, read_json, require_folder, write_json

LOAD = {"status": "ok", "workers": [{"ok": True, "cpu_s": 0.5}], "quality": {"recall": 0.5}, "duration_s": 1.0}


def refused(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(DamagedFileError) as caught:
        read_json(path)
    [line] = caught.value.mistakes
    assert line.startswith(f"{path}: ")
    assert caught.value.exit_code == 2
    return line


@pytest.mark.covers("E-NFR04")
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"status": 5}, "status is 5, not text."),
        ({"status": None}, "status is None, not text."),
        ({"workers": {}}, "workers is an object, not a list."),
        ({"workers": [[]]}, "workers[0] is a list, not an object."),
        ({"workers": [{"ok": "yes"}]}, "workers[0].ok is 'yes', not true or false."),
        ({"quality": {"recall": [1]}}, "quality.recall is a list, not a number."),
        ({"duration_s": True}, "duration_s is True, not a number."),
        ({"duration_s": -1}, "duration_s is -1 (outside of 0 to 1e+08 s)."),
        ({"finished_at": "yesterday"}, "finished_at is 'yesterday' (Invalid isoformat string: 'yesterday')."),
        ({"energy": {"node": [1]}}, "energy.node is a list, not an object."),
    ],
)
def test_a_value_of_another_kind_is_named_with_place_and_remedy(tmp_path: Path, change: Any, says: str) -> None:
    line = refused(tmp_path / "load.json", json.dumps(LOAD | change).encode())
    assert says in line
    assert "`bench submit` writes it again" in line


@pytest.mark.covers("E-NFR04")
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not valid JSON"),
        (b'{"status": "ok"', "not valid JSON"),
        (b"[]", "expected a JSON object, but it is a list"),
        (b'{"status": "ok", "sent": NaN}', "holds NaN, which is no number"),
        (b'{"status": "ok", "sent": 1e999}', "holds 1e999, which is no number"),
        (b'{"status": "ok", "sent": ' + b"9" * 5000 + b"}", "which is too large"),
        (b'{"a":' * 100_000, "nested too deep"),
        ('{"status": "é"}'.encode("utf-16"), "'utf-8' codec can't decode"),
        (b"{}", "status is missing"),
        (b'{"status": "\\ud800"}', "holds half a character"),
        (b'{"status": "ok", "workers": [{"network": {}}]}', "workers[0].network.connections is missing"),
    ],
)
def test_what_is_no_document_is_told_with_the_file(tmp_path: Path, content: bytes, says: str) -> None:
    assert says in refused(tmp_path / "load.json", content)


def test_a_folder_in_the_place_of_a_document_is_told_and_gives_way_to_the_next_one_written(tmp_path: Path) -> None:
    path = tmp_path / "load.json"
    path.mkdir()
    (path / "inside").write_text("kept")
    with pytest.raises(DamagedFileError, match=r"Is a directory\. Move it away\."):
        read_json(path)
    write_json(path, LOAD)
    assert read_json(path) == LOAD
    assert (tmp_path / "load.json.aside-1" / "inside").read_text() == "kept"


def test_a_document_that_is_whole_has_keys_that_no_version_knows_yet(tmp_path: Path) -> None:
    write_json(tmp_path / "load.json", LOAD | {"of_tomorrow": {"a": [1]}})
    assert not is_damaged(tmp_path / "load.json")
    assert not is_damaged(tmp_path / "nothing.json")


def test_what_lies_in_a_documents_place_is_damage_and_is_put_away(tmp_path: Path) -> None:
    for name in ("load.json", "meta.json"):
        (tmp_path / name).symlink_to(name)
        assert is_damaged(tmp_path / name)
        put_away(tmp_path / name)
        assert not is_damaged(tmp_path / name)


def test_results_in_the_place_of_a_file_are_refused_with_the_files_name(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file")
    with pytest.raises(UserError, match="results: is not a folder"):
        require_folder(tmp_path / "results" / "try")
    require_folder(tmp_path / "others" / "try")


@pytest.mark.parametrize("figure", [9.22337204e18, -1.797e308, 2**63 - 1])
def test_a_figure_may_be_as_large_as_a_service_says(tmp_path: Path, figure: float):
    path = tmp_path / "load.json"
    path.write_text(json.dumps({**LOAD, "quality": {"limit": figure}}))
    assert read_json(path)["quality"]["limit"] == figure
