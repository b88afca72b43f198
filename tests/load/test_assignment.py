"""A load as data: what each worker gets of it."""

import os
from pathlib import Path
from typing import Any

import pytest

from seamark.load.workers.assignment import (
    MOST_ERRORS,
    MOST_LETTERS,
    PROCESSES_A_CORE,
    LoadJob,
    WorkerAssignment,
    count_error,
)
from seamark.model.digest import seed_for
from seamark.model.sample import Failure


def test_a_share_survives_its_way_through_json(tmp_path: Path) -> None:
    job = LoadJob(driver="a:B", workers="threads", settings={"x": None, "rate_rps": 1.5}, seed=3, data=tmp_path)
    share = WorkerAssignment(job=job, worker=1, workers=2, segment=tmp_path / "s")
    assert WorkerAssignment.from_json(share.to_json()) == share


def test_errors_are_counted_by_their_code_with_the_words_of_the_first_and_no_secret() -> None:
    key = "hunter-of-tokens-22"
    request = [b"POST / HTTP/1.1\r\nHost: h\r\nX-Own: " + key.encode(), b"\r\n\r\n{}"]
    errors: dict[str, Any] = {}
    words = f"slow\n \x1b[31mdown {'x' * (MOST_LETTERS - 25)} {key} or api_key=abcdefgh"
    count_error(errors, Failure.SERVER_ERROR, f"503 Busy: {words}", request)
    count_error(errors, Failure.SERVER_ERROR, "503 Busy: again", request)
    count_error(errors, Failure.TIMEOUT, None)
    [(code, seen)] = errors.items()
    assert (code, seen["category"], seen["count"]) == ("503 Busy", "server_error", 2)
    assert seen["words"].startswith("slow .[31mdown xxx")
    assert "*** o" in seen["words"]
    assert key[:6] not in seen["words"], "cut in two it would be half a secret"
    assert len(seen["words"]) == MOST_LETTERS
    for number in range(2 * MOST_ERRORS):
        count_error(errors, Failure.SERVER_ERROR, f"E{number}: x")
    assert len(errors) == MOST_ERRORS


def test_a_secret_of_the_environment_is_not_cut_in_two_where_the_words_of_an_error_are_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGPASSWORD", "hunter-of-tables-22")
    errors: dict[str, Any] = {}
    count_error(errors, Failure.SERVER_ERROR, f"28P01: {'x' * (MOST_LETTERS - 9)} hunter-of-tables-22")
    assert errors["28P01"]["words"] == f"{'x' * (MOST_LETTERS - 9)} ***"


@pytest.mark.parametrize(
    ("concurrency", "workers", "parts"), [(5, 2, [3, 2]), (3, 3, [1, 1, 1]), (7, 4, [2, 2, 2, 1])]
)
def test_users_are_shared_out_evenly(tmp_path: Path, concurrency: int, workers: int, parts: list[int]) -> None:
    job = LoadJob(driver="a:B", workers="wire", settings={"concurrency": concurrency}, seed=1, data=tmp_path)
    shares = [WorkerAssignment(job=job, worker=k, workers=workers, segment=tmp_path) for k in range(workers)]
    assert [share.concurrency for share in shares] == parts


@pytest.mark.parametrize(
    ("workers", "settings", "processes"),
    [
        ("wire", {"concurrency": 64}, 1),
        ("wire", {"concurrency": 64, "shards": 4}, 4),
        ("wire", {"concurrency": 2, "shards": 4}, 2),
        ("threads", {"concurrency": 8, "shards": 4, "requests": 3}, 3),
        ("threads", {"concurrency": 8, "shards": 4, "connections": 3}, 3),
        ("processes", {"concurrency": 1}, 1),
        ("processes", {"concurrency": 1000, "connections": 1}, 1),
        ("processes", {"concurrency": 1000}, PROCESSES_A_CORE * (os.cpu_count() or 1)),
    ],
)
def test_there_are_never_more_processes_than_can_be_busy(
    tmp_path: Path, workers: str, settings: dict, processes: int
) -> None:
    job = LoadJob(driver="a:B", workers=workers, settings=settings, seed=1, data=tmp_path)  # type: ignore[arg-type]
    assert job.processes == processes


@pytest.mark.parametrize("requests", [1, 7, 100])
def test_the_workers_limits_add_up_to_the_requests(tmp_path: Path, requests: int) -> None:
    job = LoadJob(driver="a:B", workers="wire", settings={"requests": requests}, seed=1, data=tmp_path)
    shares = [WorkerAssignment(job=job, worker=k, workers=3, segment=tmp_path) for k in range(3)]
    assert sum(share.requests or 0 for share in shares) == requests


def test_seeds_of_different_purposes_are_apart_and_stay_the_same() -> None:
    assert seed_for(1, "arrivals") != seed_for(1, "bodies") != seed_for(2, "bodies")
    assert seed_for(1, "arrivals") == 161615046
