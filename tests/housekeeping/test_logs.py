"""`bench logs get`: every line with time, component and trial, chosen by component and time."""

import json
import os
import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from seamark.cli.main import cli
from seamark.errors import UserError
from seamark.housekeeping.logs import time_in
from seamark.model.results.load_record import LoadRecord
from seamark.planning.identity import trial_uuid
from seamark.storage.documents import write

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SERVER = "starting\n2026-01-31 11:00:00.5 UTC up\nand more\n2026-01-31T13:00:00Z late\n"
TRIAL = "null-abc--concurrency-2-def--r1"


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study with the logs of one scenario, as a run leaves them."""
    monkeypatch.chdir(tmp_path)
    scenario = tmp_path / "results" / "try"
    files = {
        "plan.json": "{}",
        "deployments/null-abc/server.log": SERVER,
        "deployments/null-abc/.keeper/keeper.log": '{"at": "2026-01-31T12:00:00+00:00", "event": "server-up"}\n',
        f"{TRIAL}/log.jsonl": '{"at": "2026-01-31T12:30:00+00:00", "trial_id": "own", "event": "load ended"}\n',
        f"logs/load/{TRIAL}.log": "a traceback\n",
        "logs/serve/null-abc.log": "",
        "logs/submit-20260131T120000.log": "[Sat Jan 31 12:00:01 2026]\nrule serve:\n",
    }
    for name, text in files.items():
        path = scenario / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (NOON.timestamp(),) * 2)
    batch = tmp_path / "logs" / "group_dep_try_null-abc" / "17.log"
    batch.parent.mkdir(parents=True)
    batch.write_text("slurmstepd: error\n")
    (tmp_path / "logs" / "group_dep_tryst_null-abc").mkdir()
    (tmp_path / "logs" / "group_dep_tryst_null-abc" / "18.log").write_text("of another scenario\n")
    return tmp_path


def get(*words: str) -> dict[str, list[dict[str, object]]]:
    """Call `bench logs get try`; return the archive's lines by the names of its files."""
    shown = CliRunner().invoke(cli, ["logs", "get", "try", "-o", "try.tar.gz", *words], standalone_mode=False)
    if shown.exception:
        raise shown.exception
    with tarfile.open("try.tar.gz") as archive:
        return {
            member.name: [json.loads(line) for line in archive.extractfile(member).read().splitlines()]
            for member in archive
        }


@pytest.mark.covers("E-LOG02", "E-LOG03", "E-NFR03")
def test_every_log_of_a_scenario_is_in_the_archive_as_lines_with_time_and_trial(study: Path) -> None:
    found = get()
    assert sorted(found) == [
        "try/job.jsonl",
        "try/load.jsonl",
        "try/run.jsonl",
        "try/server.jsonl",
        "try/supervisor.jsonl",
    ]
    traceback, own = found["try/load.jsonl"]
    assert (own["event"], own["trial"], own["trial_id"]) == ("load ended", TRIAL, "own")
    assert (traceback["text"], traceback["at"], traceback["at_from"]) == (
        "a traceback",
        "2026-01-31T12:00:00.000+00:00",
        "file",
    )
    assert (traceback["trial"], traceback["trial_id"]) == (TRIAL, trial_uuid("try", TRIAL))
    assert [line["text"] for line in found["try/job.jsonl"]] == ["slurmstepd: error"]
    assert {line["deployment"] for line in found["try/server.jsonl"]} == {"null-abc"}
    assert found["try/server.jsonl"][1]["at"] == "2026-01-31T11:00:00.500+00:00"


@pytest.mark.covers("E-LOG03", "E-NFR03")
def test_each_line_of_a_servers_log_has_a_time_and_the_trial_that_was_under_load(study: Path) -> None:
    folder = study / "results" / "try"
    load = LoadRecord(status="ok", started_at="2026-01-31T12:50:00+00:00", finished_at="2026-01-31T13:10:00+00:00")
    write(folder / TRIAL / "load.json", load)
    write(folder / "other-abc--x-def--r1" / "load.json", load)
    start = folder / "deployments/null-abc.r2/server.log"
    start.parent.mkdir()
    start.write_text("2026-01-31T13:05:00Z asked\nagain\n")
    lines = get()["try/server.jsonl"]
    assert all(line["at"] for line in lines)
    assert [line["at_from"] for line in lines] == ["file", "line", "file", "line", "line", "file"]
    under_load = [line["text"] for line in lines if line["trial_id"] == trial_uuid("try", TRIAL)]
    assert under_load == ["2026-01-31T13:00:00Z late", "2026-01-31T13:05:00Z asked", "again"]
    assert [line["trial"] for line in lines].count(None) == 3


@pytest.mark.covers("E-LOG02")
def test_logs_are_chosen_by_component_and_time_and_a_line_without_a_time_goes_with_the_one_above(study: Path) -> None:
    def of(*words: str) -> list[object]:
        return [line["text"] for line in get("--component", "server", *words)["try/server.jsonl"]]

    assert of("--until", "2026-01-31T12:00+00:00") == ["starting", "2026-01-31 11:00:00.5 UTC up", "and more"]
    assert of("--since", "2026-01-31T12:00+00:00") == ["2026-01-31T13:00:00Z late"]
    assert "try/job.jsonl" in get("--since", "1h")
    assert "try/server.jsonl" not in get("--since", "1h")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["get", "tri"], "Did you mean 'try'?"),
        (["get", "try", "--component", "sever"], "Did you mean 'server'?"),
        (["get", "try", "--since", "noon"], "how long ago"),
        (["get", "try", "-o", "nowhere/x.tar.gz"], "no file can be written in nowhere"),
        (["get", "try", "-o", "results/try/deployments/null-abc/server.log"], "is a file that this command reads"),
    ],
)
def test_a_mistake_in_what_logs_are_wanted_is_said(study: Path, words: list[str], said: str) -> None:
    shown = CliRunner().invoke(cli, ["logs", *words], standalone_mode=False)
    assert isinstance(shown.exception, UserError)
    assert said in str(shown.exception)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-01-31T12:00:00Z up", NOON),
        ("2026-01-31 14:00:00,250+0200 [1] LOG", NOON + timedelta(milliseconds=250)),
        ("INFO 2026-01-31 12:00:00 UTC x", NOON),
        ("listening on port 2026", None),
        ("x" * 100 + "2026-01-31T12:00:00Z", None),
        ("2026-13-31T12:00:00Z no such month", None),
    ],
)
def test_the_time_of_a_line_is_read_where_lines_begin(text: str, at: datetime | None) -> None:
    assert time_in(text) == at


@pytest.mark.covers("E-SEC")
def test_secrets_that_a_server_logs_are_not_in_the_archive(study):
    secret = "s3cr3t-Value0123456789"
    folder = study / "results" / "try"
    (folder / "deployments" / "null-abc" / "server.log").write_text(f"GET / Authorization: Bearer {secret}\n")
    (folder / TRIAL / "log.jsonl").write_text(json.dumps({"event": "asked", "url": f"http://a:{secret}@h/"}) + "\n")
    lines = get()
    assert secret not in json.dumps(lines)
    assert "http://a:***@h/" in json.dumps(lines)
