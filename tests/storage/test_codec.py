"""One codec reads the documents of the results: it names file, field and remedy of a damaged one."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from seamark.analysis.answers import read_said
from seamark.analysis.metrics.samples import DamagedError, open_samples
from seamark.analysis.schedule.execution_rows import read_execution_table
from seamark.errors import UserError
from seamark.model.results.load_record import LagFigures, LoadRecord, SearchOutcome, WorkerReport
from seamark.model.results.trial_meta import TrialMeta
from seamark.model.server_identity import ServerRecord
from seamark.storage.codec import decode, encode
from seamark.storage.documents import (
    DamagedFileError,
    amend,
    is_damaged,
    put_away,
    read,
    require_folder,
    write,
    write_json,
)

LOAD = {"status": "ok", "workers": [{"ok": True, "cpu_s": 0.5}], "quality": {"recall": 0.5}, "duration_s": 1.0}


def refused(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(DamagedFileError) as caught:
        read(path, LoadRecord)
    [line] = caught.value.lines
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
        read(path, LoadRecord)
    write_json(path, LOAD)
    assert read(path, LoadRecord) == decode(LOAD, LoadRecord)
    assert (tmp_path / "load.json.aside-1" / "inside").read_text() == "kept"


@pytest.mark.covers("E-NFR07")
def test_a_document_of_an_earlier_version_gets_defaults_for_what_it_lacks_or_has_as_null() -> None:
    record = decode({"status": "ok", "workers": [{"cpu_s": 0.5, "ok": None}], "kinds": None}, LoadRecord)
    assert record == LoadRecord(status="ok", workers=(WorkerReport(cpu_s=0.5, ok=True),), kinds=())


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    lag = LagFigures(p50=1, p99=2.5, max=None)
    record = LoadRecord(
        status="failed",
        reason="é \U0001f600",
        server_identity=ServerRecord(digest="d", image_digests={"server": None}),
        workers=(WorkerReport(worker=1, lag_ns=lag, stalls_ns=((1, 2), (3, 4))), WorkerReport(ok=False)),
        quality={"recall": 0.5, "hits": 3, "unknown": None},
        search=SearchOutcome(outcome="converged", bracket=(None, 4)),
    )
    write(tmp_path / "load.json", record)
    assert read(tmp_path / "load.json", LoadRecord) == record
    written = json.loads((tmp_path / "load.json").read_text())
    assert written["workers"][0]["stalls_ns"] == [[1, 2], [3, 4]]
    assert written["category"] is None
    assert "probe" not in written, "a field that only some records have"


GOLDEN = Path(__file__).parents[1] / "analysis/golden/results"


@pytest.mark.covers("E-NFR07", "E-FR08")
def test_a_meta_json_of_the_committed_results_is_written_as_it_was() -> None:
    documents = [json.loads(path.read_text()) for path in GOLDEN.glob("*/*--*/meta.json")]
    assert documents
    for document in documents:
        written = encode(decode(document, TrialMeta))
        for each in (written, document):
            del each["server_identity"]  # of an earlier version, which left out what is null
        assert json.dumps(written) == json.dumps(document)


def test_a_document_that_is_amended_keeps_what_only_a_later_version_knows(tmp_path: Path) -> None:
    write_json(tmp_path / "load.json", LOAD | {"of_tomorrow": {"a": [1]}})
    amend(tmp_path / "load.json", tmp_path / "other.json", LoadRecord, republished=True)
    amended = json.loads((tmp_path / "other.json").read_text())
    assert amended == LOAD | {"of_tomorrow": {"a": [1]}, "republished": True}


def test_a_document_that_is_whole_has_keys_that_no_version_knows_yet(tmp_path: Path) -> None:
    write_json(tmp_path / "load.json", LOAD | {"of_tomorrow": {"a": [1]}})
    assert not is_damaged(tmp_path / "load.json", LoadRecord)
    assert not is_damaged(tmp_path / "nothing.json", LoadRecord)


def test_what_lies_in_a_documents_place_is_damage_and_is_put_away(tmp_path: Path) -> None:
    for name in ("load.json", "meta.json"):
        (tmp_path / name).symlink_to(name)
        assert is_damaged(tmp_path / name, LoadRecord)
        put_away(tmp_path / name)
        assert not is_damaged(tmp_path / name, LoadRecord)


def test_results_in_the_place_of_a_file_are_refused_with_the_files_name(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file")
    with pytest.raises(UserError, match="results: is not a folder"):
        require_folder(tmp_path / "results" / "try")
    require_folder(tmp_path / "others" / "try")


@pytest.mark.parametrize("figure", [9.22337204e18, -1.797e308, 2**63 - 1])
def test_a_figure_may_be_as_large_as_a_service_says(tmp_path: Path, figure: float):
    path = tmp_path / "load.json"
    path.write_text(json.dumps({**LOAD, "quality": {"limit": figure}}))
    assert read(path, LoadRecord).quality["limit"] == figure


def test_a_pipe_in_place_of_a_file_is_refused_at_once(tmp_path):
    pipe = tmp_path / "load.json"
    os.mkfifo(pipe)
    with pytest.raises(DamagedFileError, match=r"load\.json"):
        read(pipe, LoadRecord)
    with pytest.raises(DamagedError):
        open_samples(pipe)
    with pytest.raises(DamagedError):
        read_execution_table(pipe)
    assert read_said(pipe) is None
