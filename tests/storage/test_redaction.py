"""Secrets are used and not kept: what is written or printed has a mark in their place."""

import json

import pytest
from report.make_results import Made, make_results

from seamark.planning.identity import words_of
from seamark.report.page.render import write_report
from seamark.storage.redaction import REDACTED, redacted, redacted_text

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
