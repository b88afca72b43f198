"""Secrets are used and not kept: what is written or printed has a mark in their place."""

import json
import os
from pathlib import Path

import pytest
from report.make_results import Made, make_results

from seamark.config.secrets import secrets_of
from seamark.model.results.deployment_record import ServerEnd
from seamark.model.results.load_record import ErrorsSeen, LoadRecord, WorkerReport
from seamark.planning.identity import words_of
from seamark.report.page.render import write_report
from seamark.storage.redaction import REDACTED, hidden, hide_in_log, redacted, redacted_text

SECRET = "s3cr3t-Value0123456789"


@pytest.mark.covers("E-SEC")
@pytest.mark.parametrize(
    "text",
    [
        f"http://user:{SECRET}@127.0.0.1:8000/v1: nothing listens there",
        f"GET https://host/path?a=1&api_key={SECRET}&b=2 failed",
        f"https://bucket/key?X-Amz-Signature={SECRET}",
        f"https://host/?token={SECRET}",
        f"--header 'Authorization: Bearer {SECRET}'",
        f'{{"Authorization": "Basic {SECRET}"}}',
        f"cookie: session={SECRET}",
        f"PGPASSWORD={SECRET} psql",
        f"export AWS_SECRET_ACCESS_KEY='{SECRET}'",
        f"  api_key: {SECRET}",
        f"password={SECRET}, user=bench",
        f'MINIO_ROOT_PASSWORD: "{SECRET}"',
        f"sent Bearer {SECRET}",
        f"huggingface: hf_{SECRET.replace('-', '')}",
    ],
)
def test_a_secret_in_a_text_is_replaced_and_the_rest_stays(text):
    shown = redacted_text(text)
    assert SECRET not in shown
    assert REDACTED in shown
    assert shown.split(" ", maxsplit=1)[0][:4] == text.split(" ", maxsplit=1)[0][:4]
    assert redacted_text(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "output_tokens: 128, tokenizer: meta/llama, prompt_tokens=7",
        "api_key_env: OPENAI_API_KEY",
        "http://127.0.0.1:8000/v1/completions?stream=true",
        "PGPASSWORD=$PGPASSWORD psql",
        "next token: 17 at 12:30:05",
        "the server at host:8000@node1 ended",
        "key: value, cookies, secretary: none",
    ],
)
def test_what_is_no_secret_stays_as_it_is(text):
    assert redacted_text(text) == text


@pytest.mark.covers("E-SEC")
def test_settings_are_redacted_by_their_names_and_what_they_hold():
    settings = {
        "url": f"http://me:{SECRET}@127.0.0.1:1/a?token={SECRET}&b=1",
        "headers": json.dumps({"X-Odd": SECRET, "Authorization": f"Bearer {SECRET}", "Content-Type": "text/plain"}),
        "extra_body": json.dumps({"user": "me", "nested": {"api_key": SECRET}}),
        "api_key": SECRET,
        "api_key_env": "KEY",
        "password": None,
        "prompt_len": 128,
        "list": [f"http://a:{SECRET}@b/"],
    }
    shown = redacted(settings)
    assert SECRET not in json.dumps(shown)
    assert json.loads(shown["headers"]) == {
        "X-Odd": REDACTED,
        "Authorization": REDACTED,
        "Content-Type": "text/plain",
    }
    assert shown["url"].startswith("http://me:")
    assert shown["url"].endswith("&b=1")
    assert (shown["api_key_env"], shown["password"], shown["prompt_len"]) == ("KEY", None, 128)
    assert json.loads(shown["extra_body"])["user"] == "me"


def test_a_document_without_secrets_stays_as_it_is_written():
    mix = '{"chat":{"weight":3},"search":{"prompt_len":4096}}'
    assert redacted({"mix": mix, "extra_body": '{ "top_k" : 1 }'}) == {"mix": mix, "extra_body": '{ "top_k" : 1 }'}


@pytest.mark.covers("E-SEC")
def test_a_secret_is_no_word_of_a_trial_and_the_name_of_its_setting_is():
    words = words_of({"headers": json.dumps({"X": SECRET}), "url": f"http://a:{SECRET}@h/", "token": SECRET, "n": 2})
    assert words == ["headers", "url", "token", "n-2"]


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without variables."""
    for name in os.environ:
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.covers("D4", "E-SEC")
def test_secrets_are_those_of_variables_named_so_and_of_references_the_longest_first(
    variables: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    named = {
        "HF_TOKEN": "a-hub",
        "PGPASSWORD": "a-base1",
        "AWS_ACCESS_KEY_ID": "an-access",
        "AWS_SECRET_ACCESS_KEY": "a/s+cret",
    }
    others = {"PWD": "/a/folder", "THE_KEY": "of-a-header", "NEXT": "of-an-api-key", "UNASKED": "is-no-secret"}
    for name, value in (named | others).items():
        variables.setenv(name, value)
    (tmp_path / "key").write_text("in-a-file-of-mine\n")
    headers = {"A": "Bearer env:THE_KEY", "B": f"file:{tmp_path / 'key'}", "C": "env:NOT_SET", "D": "plain"}
    settings = {"headers": json.dumps(headers), "party.api_key_env": "NEXT", "prompt_len": 128, "model": None}
    found = ["in-a-file-of-mine", "of-an-api-key", "of-a-header", "an-access", "a/s+cret", "a-base1"]
    assert secrets_of({}, settings) == tuple(found)
    assert secrets_of() == tuple(found[3:]), "a-hub is too short to be told from other words"


@pytest.mark.covers("D4", "E-SEC")
def test_of_a_record_that_alone_is_hidden_which_others_have_said() -> None:
    said = f"password=x, {SECRET} is wrong"
    load = LoadRecord(
        status="failed",
        scenario=SECRET,
        reason=said,
        log_tail=(said, "up"),
        errors={SECRET: ErrorsSeen(category="server_error", count=1, words=said)},
        workers=(WorkerReport(ok=False, reason=said), WorkerReport()),
    )
    shown = hidden(load, [SECRET])
    quiet = "password=***, *** is wrong"
    assert (shown.reason, shown.log_tail) == (quiet, (quiet, "up"))
    assert [worker.reason for worker in shown.workers] == [quiet, None]
    assert (shown.scenario, shown.errors) == (
        SECRET,
        {SECRET: ErrorsSeen(category="server_error", count=1, words=quiet)},
    )
    end = ServerEnd(why="teardown")
    assert hidden(end, [SECRET]) == end


@pytest.mark.covers("D4", "E-SEC")
def test_a_log_that_has_ended_loses_its_secrets_and_keeps_its_time_and_one_without_is_not_written(
    tmp_path: Path,
) -> None:
    secret = 'of "two" words'
    log, other = tmp_path / "log", tmp_path / "other"
    log.write_text(f"sent {secret}{secret}\n" + json.dumps({"sent": secret}) + "\nend")
    other.write_text("sent\n")
    for path in (log, other):
        os.utime(path, ns=(1, 2))
    written = other.stat()
    for path in (log, other, tmp_path / "none"):
        hide_in_log(path, [secret])
    assert log.read_text() == 'sent ******\n{"sent": "***"}\nend'
    assert log.stat().st_mtime_ns == 2
    assert (other.stat().st_ino, other.stat().st_ctime_ns) == (written.st_ino, written.st_ctime_ns)


@pytest.mark.slow
@pytest.mark.covers("E-SEC")
def test_secrets_of_settings_are_in_no_figure_summary_or_report(tmp_path):
    made = Made(
        service="http",
        component="inference",
        unit="reply",
        service_ms=5,
        cap_rps=300,
        factors={"headers": (json.dumps({"Authorization": f"Bearer {SECRET}"}),), "concurrency": (1, 2)},
    )
    results = make_results(tmp_path / "results", services=(made,), fail=(1,), suspect=())
    (results / "scenario.yaml").write_text(f'workload:\n  headers: \'{{"Authorization": "Bearer {SECRET}"}}\'\n')
    index = write_report(results, tmp_path / "reports")
    assert "duration_s" in index.read_text()
    written = [*results.rglob("metrics.json"), *results.glob("summary.*"), *index.parent.rglob("*")]
    assert len(written) > 10
    assert [path for path in written if path.is_file() and SECRET.encode() in path.read_bytes()] == []
