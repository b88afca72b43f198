"""The index of all runs: the same made anew or in part, without what is damaged, and never the only copy."""

import json
import os
import shutil
import subprocess
import sys

import duckdb
import pytest
from made_runs import Night, nights

from seamark.errors import UserError
from seamark.history.index import open_index, roots_of
from seamark.storage.paths import history_index

ALL = "SELECT * FROM history ORDER BY folder, metric"


def updated(results, *, rebuild=False, roots=None):
    with open_index(results, rebuild=rebuild) as index:
        scanned = index.update(roots or {"present": results})
        return scanned, index.rows(ALL)


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results"
    nights(folder, [100, 101, 99])
    Night(number=3, throughputs={1: (98, 97, 99)}, commit="f00d").write(folder / "made")
    return folder


def test_a_row_has_figure_place_time_and_commit_of_its_trial(results):
    _, rows = updated(results)
    [row] = [each for each in rows if each["run"] == "night-1" and each["metric"] == "throughput.value"][:1]
    assert row["value"] == 101
    assert row["unit"] == "replies/s"
    assert row["better"] == "higher"
    assert row["commit"] == f"0001abcdef{1:030d}"
    assert row["machine"] == "node1"
    assert row["started_at"].isoformat() == "2026-01-02T03:00:00"
    assert json.loads(row["levels"]) == {"concurrency": 1}
    assert {each["metric"] for each in rows} >= {"latency_ms.p99", "quality.recall_at_10", "throughput.value"}
    assert {each["run"] for each in rows if not each["kept"]} == {"present"}


@pytest.mark.slow
def test_an_update_in_part_gives_the_index_that_is_made_anew(results):
    first, _ = updated(results)
    assert (first.trials, first.read) == (12, 12)
    again, before = updated(results)
    assert again.read == 0
    Night(number=3, throughputs={1: (50, 51, 52)}, commit="f00d").write(results / "made")  # measured anew
    nights(results, [100, 101, 99, 80])  # one more run; the others are as they were, with other times
    shutil.rmtree(results / "history" / "made" / "night-0")
    _, in_part = updated(results)
    _, anew = updated(results, rebuild=True)
    assert in_part == anew
    assert in_part != before
    assert not any(row["run"] == "night-0" for row in in_part)


def test_the_index_can_be_deleted_and_nothing_is_lost(results):
    _, before = updated(results)
    history_index(results).unlink()
    assert updated(results)[1] == before


@pytest.mark.slow
@pytest.mark.covers("E-NFR04")
@pytest.mark.parametrize("text", ["", "{", "[]", '{"trial": 5}', "\x00\x01"])
def test_damaged_metrics_are_listed_and_left_out_until_they_are_whole_again(results, text):
    path = next((results / "made").glob("*--r2")) / "metrics.json"
    whole = path.read_text()
    path.write_text(text)
    scanned, rows = updated(results)
    [damaged] = scanned.damaged
    assert damaged.path == str(path)
    assert damaged.why
    assert len({row["folder"] for row in rows}) == 11
    path.write_text(whole)
    scanned, rows = updated(results)
    assert scanned.damaged == ()
    assert len({row["folder"] for row in rows}) == 12


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"no database", b"", None])
def test_a_damaged_or_outdated_index_is_made_again(results, content):
    _, before = updated(results)
    path = history_index(results)
    if content is None:
        with duckdb.connect(str(path)) as connection:
            connection.execute("UPDATE version SET version = 0")
    else:
        path.write_bytes(content)
    assert updated(results)[1] == before


def test_an_index_that_is_cut_off_is_made_again(results):
    _, before = updated(results)
    path = history_index(results)
    path.write_bytes(path.read_bytes()[:5000])
    assert updated(results)[1] == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_results_that_cannot_be_written_are_indexed_in_memory(results):
    results.chmod(0o500)
    try:
        assert updated(results)[0].trials == 12
    finally:
        results.chmod(0o700)


@pytest.mark.slow
def test_an_index_that_is_open_elsewhere_is_made_in_memory(results):
    with open_index(results) as index:
        index.update({"present": results})
        code = (
            "from pathlib import Path; from seamark.history.index import open_index\n"
            f"results = Path({str(results)!r})\n"
            "with open_index(results) as index: print(index.update({'present': results}).trials)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "12", done.stderr
    assert history_index(results).exists()


def test_a_measurement_that_was_copied_counts_once(results, tmp_path):
    other = tmp_path / "elsewhere" / "results"
    shutil.copytree(results / "history" / "made" / "night-2", other / "made")
    roots = roots_of(results, [str(other)], "present")
    scanned, _ = updated(results, roots=roots)
    assert (scanned.trials, scanned.copies) == (12, 3)


def test_another_results_folder_has_its_runs_under_its_own_name(results, tmp_path):
    other = tmp_path / "other"
    Night(number=9, throughputs={1: (1, 2, 3)}).write(other / "made")
    _, rows = updated(results, roots=roots_of(results, [str(other)], "present"))
    assert {row["run"] for row in rows} == {"present", "night-0", "night-1", "night-2", str(other)}


def test_a_folder_that_is_missing_or_empty_is_refused(results, tmp_path):
    (tmp_path / "empty").mkdir()
    for wrong in ("nowhere", str(tmp_path / "empty"), "x" * 5000):
        with pytest.raises(UserError, match="--from"):
            roots_of(results, [wrong], "present")
