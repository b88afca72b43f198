"""The driver of servers with the OpenAI API: what it asks, what a whole reply is worth, and real loads."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import a_load, a_trial, write_samples
from shipped import SERVICES

from seamark.analysis.metrics.document import derive_metrics
from seamark.drivers.openai.driver import OpenAi, quality
from seamark.drivers.openai.replies import WholeDecoder
from seamark.drivers.openai.requests import MOST_BODIES
from seamark.drivers.openai.stream import EventStreamDecoder
from seamark.errors import UserError
from seamark.load.coordinator.coordinator import LoadJob, LoadOutcome, run_load
from seamark.load.driver import Target
from seamark.load.engine.event_loop import encode_all
from seamark.load.workers.records import read_segment
from seamark.model.sample import CHUNK, MISSING_NS, Failure
from seamark.patterns.trace_file import TraceRow
from seamark.services.ephemeral_server import ephemeral_server
from seamark.storage.codec import encode
from seamark.storage.paths import TrialFolder
from seamark.testservers.truth import read_truth


def driver(host="127.0.0.1", ports=None, **settings):
    settings = {"model": "m", "prompt_len": 20, "gen_tokens": 9, **settings}
    return OpenAi(Target(settings=settings, data=Path(), host=host, ports=ports or {"http": 8000}))


def asked(made: OpenAi, count: int = 1, seed: int = 1) -> tuple[str, dict[str, str], dict[str, Any]]:
    """Return the request line, the headers and the document of the first of `count` requests."""
    head, _, body = made.encode(made.bodies(count, seed)[0]).partition(b"\r\n\r\n")
    line, *fields = head.decode().split("\r\n")
    headers = dict(field.split(": ", 1) for field in fields)
    assert int(headers["Content-Length"]) == len(body)
    return line, headers, json.loads(body)


def test_a_completion_is_asked_for_in_token_ids():
    line, headers, document = asked(driver())
    assert line == "POST /v1/completions HTTP/1.1"
    assert headers["Host"] == "127.0.0.1:8000"
    assert headers["Content-Type"] == "application/json"
    prompt = document.pop("prompt")
    assert len(prompt) == 20
    assert all(isinstance(each, int) for each in prompt)
    assert document == {
        "model": "m",
        "max_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        "ignore_eos": True,
    }


@pytest.mark.covers("E-FR20")
def test_a_batch_is_several_prompts_in_one_request():
    document = asked(driver(batch=3, prompt_len_shape="uniform", prompt_len_spread=0.5), count=40)[2]
    assert len(document["prompt"]) == 3
    assert len({len(prompt) for prompt in document["prompt"]}) > 1
    bodies = driver(batch=3).bodies(10, 1)
    assert [body.content.prompt_units for body in bodies] == [60] * 10


def test_text_and_chat_are_words():
    assert len(asked(driver(prompt_form="text"))[2]["prompt"].split()) == 20
    line, _, document = asked(driver(endpoint="chat"))
    assert line == "POST /v1/chat/completions HTTP/1.1"
    [message] = document["messages"]
    assert message["role"] == "user"
    assert len(message["content"].split()) == 20


def test_without_streaming_no_stream_is_asked_for():
    made = driver(stream=False, temperature=None, ignore_eos=False)
    document = asked(made)[2]
    assert document.keys() == {"model", "stream", "max_tokens", "prompt"}
    assert document["stream"] is False
    assert isinstance(made.decoder(), WholeDecoder)
    assert isinstance(driver().decoder(), EventStreamDecoder)


def test_other_names_of_port_path_and_model_are_taken():
    line, headers, document = asked(driver(host="::1", ports={"main": 1}, base_path="/api/v3/", served_model="lora"))
    assert (line, headers["Host"]) == ("POST /api/v3/completions HTTP/1.1", "[::1]:1")
    assert document["model"] == "lora"
    assert asked(driver(base_path="/"))[0] == "POST /completions HTTP/1.1"
    assert asked(driver(base_path="/v1/?a=1"))[0] == "POST /v1/completions?a=1 HTTP/1.1"
    assert "model" not in asked(driver(model=None))[2]


def test_other_fields_are_added_as_json():
    extra = '{"top_p": 0.5, "temperature": 1, "stream_options": {"continuous_usage_stats": true}}'
    document = asked(driver(extra_body=extra))[2]
    assert (document["top_p"], document["temperature"]) == (0.5, 1)
    assert document["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


@pytest.mark.parametrize(
    ("extra", "gone", "there"),
    [
        ({"max_tokens": None, "max_completion_tokens": "{max_tokens}"}, {"max_tokens"}, {"max_completion_tokens": 9}),
        ({"min_tokens": "{max_tokens}", "seed": 5}, set(), {"min_tokens": 9, "max_tokens": 9, "seed": 5}),
        ({"temperature": None, "ignore_eos": None, "stream_options": None, "model": None}, {...}, {"stream": True}),
        ({"model": "other", "ignore_eos": False}, set(), {"model": "other", "ignore_eos": False}),
        ({"stop": None}, set(), {"stop": None}),
        ({"options": {"num_predict": "{max_tokens}", "names": ["{model}"]}}, set(), {"options": {...}}),
    ],
)
@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_every_field_of_a_request_can_be_renamed_changed_or_left_out(endpoint, extra, gone, there):
    document = asked(driver(endpoint=endpoint, extra_body=json.dumps(extra)))[2]
    gone = set(extra) if gone == {...} else gone
    there = {"options": {"num_predict": 9, "names": ["m"]}} if "options" in there else there
    assert not gone & document.keys()
    assert {name: document[name] for name in there} == there
    ours = asked(driver(endpoint=endpoint))[2]
    assert {name: document[name] for name in ours.keys() - extra.keys()} == {
        name: ours[name] for name in ours.keys() - extra.keys()
    }


def test_a_prompt_can_have_another_name_in_rows_of_a_trace_too():
    made = driver(extra_body='{"prompt": null, "input": "{prompt}"}')
    row = made.row_body(0, TraceRow(at_s=0.0, prompt_tokens=600, output_tokens=3, blocks=(1, 2)), 1)
    request = made.encode(row)
    assert isinstance(request, bytes)
    document = json.loads(request.partition(b"\r\n\r\n")[2])
    assert (len(document["input"]), "prompt" in document) == (600, False)


def test_a_reply_whose_length_is_not_asked_for_is_not_held_against_it():
    for extra, asked_units in (({}, 9), ({"max_tokens": None}, 0), ({"max_tokens": None, "n": "{max_tokens}"}, 9)):
        made = driver(extra_body=json.dumps(extra))
        made.encode(made.bodies(1, 1)[0])
        assert made.asked_units == asked_units


def test_headers_of_ones_own_are_sent_with_what_they_refer_to(monkeypatch, tmp_path):
    monkeypatch.setenv("THE_KEY", " from-env ")
    (tmp_path / "key").write_text("from-file\n")
    own = {"Authorization": "Bearer env:THE_KEY", "api-key": f"file:{tmp_path}/key", "host": "a.example", "X-N": 3}
    headers = asked(driver(headers=json.dumps(own)))[1]
    assert (headers["Authorization"], headers["api-key"]) == ("Bearer from-env", "from-file")
    assert (headers["host"], "Host" in headers, headers["X-N"]) == ("a.example", False, "3")
    assert headers["Content-Type"] == "application/json"
    assert "Content-Type" not in asked(driver(headers='{"content-type": "text/json"}'))[1]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"endpoint": "chats"},
            "endpoint: 'chats' is none of completions, chat, embeddings, rerank. Did you mean 'chat'?",
        ),
        ({"prompt_form": "tokens"}, "prompt_form: 'tokens' is none of ids, text"),
        ({"endpoint": "chat", "prompt_form": "ids"}, "prompt_form: 'ids' is none of text"),
        ({"endpoint": "chat", "batch": 2}, "batch: 2 prompts in one request are for completions only"),
        ({"prefix_len": 21}, "prefix_len: 21 tokens are more than the 20 of the longest prompt"),
        ({"extra_body": "{top_p"}, "extra_body: not JSON"),
        ({"extra_body": "[1]"}, "extra_body: not a JSON object"),
        ({"extra_body": '{"prompt": "x"}'}, "extra_body: 'prompt' is set by the setting prompt_len"),
        ({"extra_body": '{"max_tokens": 5}'}, "extra_body: 'max_tokens' is set by the setting gen_tokens"),
        ({"extra_body": '{"stream": null}'}, "extra_body: 'stream' is set by the setting stream"),
        ({"extra_body": '{"m": ["{max_token}"]}'}, "Did you mean 'max_tokens'?"),
        ({"headers": '{"X-A": "1", "x-a": "2"}'}, "headers: 'x-a' is written twice"),
        ({"headers": '{"Content-Length": "3"}'}, "headers: 'Content-Length' says how long the body is"),
        ({"headers": '{"X A": "1"}'}, "headers: 'X A' is no name of a header"),
        ({"headers": '{"X-A": "1\\r\\nX-B: 2"}'}, "headers: X-A: a value is one line"),
        ({"headers": '{"X-A": "env:NOT SET"}'}, "headers: X-A: 'env:NOT SET' names no secret"),
        ({"headers": '{"X-A": "file:/nowhere"}'}, "headers: X-A: file:/nowhere cannot be read where the load runs"),
        ({"headers": '{"authorization": "x"}', "api_key_env": "HOME"}, "both set Authorization"),
        ({"base_path": "/v1/chat/completions"}, "base_path: '/v1/chat/completions' names an endpoint"),
        ({"max_model_len": 28}, "prompt_len: 20 tokens do not fit, there is room for 19"),
        ({"max_model_len": 9}, "gen_tokens: 9 tokens do not fit, there is room for 8"),
        ({"token_id_min": 9, "token_id_max": 9}, "token_id_max: 9 is not more than token_id_min, 9"),
        ({"tokenizer": "/nowhere"}, "tokenizer: there is no /nowhere"),
    ],
)
@pytest.mark.covers("E-VAL")
def test_a_wrong_setting_is_said_in_one_line(settings, says):
    with pytest.raises(UserError) as caught:
        driver(**settings).bodies(1, 1)
    assert says in str(caught.value)


def test_the_key_of_an_api_comes_from_the_environment_and_goes_nowhere_else(monkeypatch):
    monkeypatch.delenv("THE_KEY", raising=False)
    with pytest.raises(UserError, match="environment variable THE_KEY is not one line"):
        driver(api_key_env="THE_KEY")
    monkeypatch.setenv("THE_KEY", "se\ncret")
    with pytest.raises(UserError) as caught:
        driver(api_key_env="THE_KEY")
    assert "cret" not in str(caught.value)
    monkeypatch.setenv("THE_KEY", " secret\n")
    made = driver(api_key_env="THE_KEY")
    assert asked(made)[1]["Authorization"] == "Bearer secret"
    assert "secret" not in repr(made.bodies(1, 1))
    assert "Authorization" not in asked(driver())[1]


@pytest.mark.covers("E-FR14")
def test_bodies_follow_their_seed_and_differ_from_each_other():
    made = driver()
    bodies = [made.encode(body) for body in made.bodies(200, 7)]
    assert len(set(bodies)) == 200
    assert [made.encode(body) for body in driver().bodies(200, 7)] == bodies
    assert not set(bodies) & {made.encode(body) for body in made.bodies(200, 8)}


def test_a_shared_prefix_is_the_same_in_every_prompt_of_every_batch():
    made = driver(prefix_len=15, batch=2)
    prompts = [prompt.tolist() for body in made.bodies(50, 1) for prompt in body.content.prompts]
    assert len({tuple(prompt[:15]) for prompt in prompts}) == 1
    assert len({tuple(prompt[15:]) for prompt in prompts}) == 100


@pytest.mark.parametrize(("prompt_len", "batch"), [(1, 1), (128, 1), (4096, 8), (500_000, 1)])
def test_the_requests_of_a_trial_take_bounded_memory(prompt_len, batch):
    made = driver(prompt_len=prompt_len, batch=batch)
    assert 16 <= made.body_count <= MOST_BODIES
    assert made.body_count * prompt_len * batch * 6 <= max(64 << 20, 16 * prompt_len * batch * 6)
    if prompt_len == 4096:
        requests = encode_all(made, made.bodies(8, 1))
        assert max(request.size_bytes for request in requests) < 1.1 * 6 * prompt_len * batch


def test_replies_may_differ_in_length():
    bodies = driver(gen_tokens=100, gen_tokens_shape="uniform", gen_tokens_spread=0.5).bodies(300, 1)
    found = [body.content.gen_tokens for body in bodies]
    assert (min(found) < 60, max(found) > 140, np.mean(found)) == (True, True, pytest.approx(100, abs=1))


@pytest.mark.parametrize("name", ["vllm", "known"])
def test_the_defaults_of_a_recipe_make_requests(name):
    service = SERVICES[name]
    settings = {setting.name: setting.default for setting in service.settings}
    assert service.driver == "seamark.drivers.openai:OpenAi"
    assert asked(OpenAi(Target(settings=settings, data=Path(), ports={"main": 1})))[2]["stream"] is True


def whole(body: bytes, status: int = 200) -> WholeDecoder:
    decoder = WholeDecoder()
    assert decoder.feed(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
    return decoder


def choices(*said: Any, **more: Any) -> bytes:
    return json.dumps({"choices": [{"index": at, **each} for at, each in enumerate(said)], **more}).encode()


def test_a_whole_reply_is_worth_what_the_server_counted():
    usage = {"prompt_tokens": 11, "completion_tokens": 30, "total_tokens": 41}
    for said in ({"text": " a b"}, {"message": {"role": "assistant", "content": None, "reasoning": "a"}}):
        decoder = whole(choices(said, said, usage=usage))
        assert (decoder.units, decoder.prompt_units, decoder.counted) == (30, 11, True)
        assert (decoder.failure, decoder.status) == (Failure.NONE, 200)
    decoder = whole(choices({"text": " a"}, {"text": " b"}, {"text": ""}))
    assert (decoder.units, decoder.prompt_units, decoder.counted) == (2, None, False)


@pytest.mark.parametrize("written", [7, "7", 7.0])
def test_a_count_of_tokens_may_be_a_text_or_have_a_point(written):
    decoder = whole(choices({"text": " a"}, usage={"completion_tokens": written, "prompt_tokens": written}))
    assert (decoder.failure, decoder.units, decoder.prompt_units, decoder.counted) == (Failure.NONE, 7, 7, True)


@pytest.mark.parametrize("absurd", [-5, 10**26, 1e26, True, "7 tokens"])
def test_an_absurd_count_of_tokens_makes_a_whole_reply_wrong(absurd):
    decoder = whole(choices({"text": " a"}, usage={"completion_tokens": absurd}))
    assert (decoder.failure, decoder.units, decoder.counted) == (Failure.WRONG_REPLY, 1, False)


@pytest.mark.parametrize(
    ("body", "status", "failure"),
    [
        (choices({"text": ""}), 200, Failure.EMPTY_REPLY),
        (choices({"text": ""}, usage={"prompt_tokens": 3, "completion_tokens": 0}), 200, Failure.EMPTY_REPLY),
        (choices({"text": ""}, usage={"prompt_tokens": 3, "completion_tokens": 7}), 200, Failure.EMPTY_REPLY),
        (b'{"error": {"message": "no"}}', 200, Failure.SERVER_ERROR),
        (b"<html>", 200, Failure.WRONG_REPLY),
        (b"[]", 200, Failure.WRONG_REPLY),
        (b"\xff", 200, Failure.WRONG_REPLY),
        (b'{"error": {"message": "no"}}', 404, Failure.CLIENT_ERROR),
        (b"", 500, Failure.SERVER_ERROR),
    ],
)
def test_a_whole_reply_that_is_not_good_has_a_category(body, status, failure):
    decoder = whole(body, status)
    assert (decoder.failure, decoder.status) == (failure, status)
    assert decoder.keep_alive


@pytest.fixture
def known() -> Iterator[Callable[..., int]]:
    """Start reference servers; each call returns the port of one."""
    with ExitStack() as servers:
        yield lambda *words: servers.enter_context(ephemeral_server("seamark.testservers.reference", *words))


def loaded(port: int, folder: Path, **settings: Any) -> tuple[LoadOutcome, Any, Any]:
    """Load a server for a moment; return the outcome, the samples in their order, and the chunks."""
    given = {"duration_s": 30.0, "warmup_s": 0.0, "timeout_s": 10.0, "concurrency": 4, "requests": 200}
    job = LoadJob(
        driver="seamark.drivers.openai:OpenAi",
        workers="wire",
        settings={**given, "prompt_len": 50, "gen_tokens": 12, **settings},
        seed=1,
        data=folder,
        ports={"main": port},
    )
    outcome = run_load(job, None, folder / "parts")
    samples = np.concatenate([each for path in outcome.segments for each in read_segment(path)])
    chunks = [each for path in outcome.files["chunks"] for each in read_segment(path, form=CHUNK)]
    return outcome, np.sort(samples, order="index"), np.concatenate(chunks) if chunks else np.zeros(0, dtype=CHUNK)


LOADS = (
    ((), {}),
    ((), {"batch": 3}),
    (("--line-end=crlf", "--space=false"), {"batch": 3}),
    (("--split=writes", "--piece-ms=0"), {"endpoint": "chat"}),
    (("--split=chunks", "--piece-ms=0"), {"endpoint": "chat"}),
    (("--split=utf8", "--piece-ms=0"), {"shards": 2}),
    (("--events-per-write=5",), {"endpoint": "chat"}),
    (("--chunk-tokens=3", "--first-tokens=5"), {}),
    (("--reasoning-chunks=3", "--reasoning-field=reasoning", "--tail-ms=2"), {"endpoint": "chat"}),
)


@pytest.mark.services
@pytest.mark.covers("E-FR20")
@pytest.mark.parametrize(("served", "asks"), LOADS, ids=[" ".join([*served, *asks]) for served, asks in LOADS])
def test_tokens_and_chunks_of_a_load_are_those_of_the_known_answer(served, asks, known, tmp_path):
    port = known(*served)
    outcome, samples, chunks = loaded(port, tmp_path, **asks)
    many = asks.get("batch", 1)
    per_choice = 3 + 1 if "--chunk-tokens=3" in served else 12
    assert set(samples["failure"]) == {Failure.NONE}
    assert set(samples["units"]) == {12 * many}
    assert set(np.bincount(chunks["index"], chunks["events"])) == {per_choice * many}
    assert (samples["first_ns"] != MISSING_NS).all()
    assert outcome.quality == {"prompt_tokens_ratio": 1.0, "prompt_tokens_right_ratio": 1.0}


MIX = '{"long": {"weight": 3, "gen_tokens": 24}, "short": {"weight": 1, "gen_tokens": 6}}'
SHORT = (
    ({"gen_tokens": 12, "batch": 2}, [24], True),
    ({"mix": MIX}, [24, 6], True),
    ({"gen_tokens": 6}, [6], False),
    ({"gen_tokens": 12, "ignore_eos": False}, [0], False),
)


@pytest.mark.services
@pytest.mark.covers("E-FR09")
@pytest.mark.parametrize(("asks", "tokens", "short"), SHORT, ids=["half", "a mix", "all", "an end of its own"])
def test_replies_shorter_than_asked_are_suspect_by_what_each_request_asked_for(asks, tokens, short, known, tmp_path):
    """A server that ends each reply after 6 tokens."""
    outcome, samples, _ = loaded(known("--chunks=6"), tmp_path, shards=2, **asks)
    asked = sum(tokens[kind] for kind in samples["kind"])
    assert sum(report.asked_units for report in outcome.reports) == asked
    folder = TrialFolder(root=tmp_path / "trial")
    write_samples(folder.samples, samples)
    load = a_load(unit="token", kinds=list(outcome.kinds), workers=encode(outcome.reports))
    reasons = derive_metrics(a_trial(), load, folder, scenario="s").metrics.reasons
    said = [re.findall(r"[\d.]+(?: %)?", reason.text) for reason in reasons if reason.code == "replies_short"]
    mean = 6 * asks.get("batch", 1)
    assert said == ([[f"{mean}", f"{20_000 * mean / asked:.0f} %", f"{asked / 200:.4g}"]] if short else [])


@pytest.mark.services
@pytest.mark.parametrize("asks", [{}, {"endpoint": "chat"}, {"batch": 3}, {"prompt_form": "text"}])
def test_whole_replies_of_a_load_are_worth_their_tokens(asks, known, tmp_path):
    outcome, samples, chunks = loaded(known(), tmp_path, stream=False, **asks)
    assert set(samples["units"]) == {12 * asks.get("batch", 1)}
    assert set(samples["failure"]) == {Failure.NONE}
    assert not len(chunks)
    assert outcome.quality["prompt_tokens_right_ratio"] == 1


@pytest.mark.services
@pytest.mark.covers("E-FR09")
def test_faults_of_a_server_are_told_apart(known, tmp_path):
    port = known("--error-every=10", "--empty-every=15", "--reset-every=7")
    _, samples, _ = loaded(port, tmp_path, concurrency=1, requests=210)
    number = np.arange(1, 211)
    assert (samples["failure"][number % 7 == 0] == Failure.RESET).all()
    assert (samples["failure"][(number % 10 == 0) & (number % 7 > 0)] == Failure.SERVER_ERROR).all()
    left = (number % 15 == 0) & (number % 10 > 0) & (number % 7 > 0)
    assert (samples["failure"][left] == Failure.EMPTY_REPLY).all()
    assert (samples["failure"] == Failure.NONE).sum() == 210 - sum((number % 7 == 0) | (number % 10 == 0) | left)


@pytest.mark.services
def test_without_a_usage_chunks_are_counted(known, tmp_path):
    _, samples, _ = loaded(known("--usage=never", "--chunk-tokens=3"), tmp_path)
    assert set(samples["units"]) == {4}
    assert set(samples["uncounted"]) == {1}
    _, samples, _ = loaded(known("--usage=never"), tmp_path / "whole", stream=False)
    assert (set(samples["units"]), set(samples["uncounted"])) == ({1}, {1})


@pytest.mark.services
@pytest.mark.covers("E-FR09")
@pytest.mark.parametrize("asks", [{}, {"stream": False}])
@pytest.mark.parametrize("usage", ["negative", "huge"])
def test_an_absurd_usage_fails_its_request_and_not_the_load(usage, asks, known, tmp_path):
    _, samples, _ = loaded(known(f"--usage={usage}"), tmp_path, **asks)
    assert len(samples) == 200
    assert set(samples["failure"]) == {Failure.WRONG_REPLY}
    assert set(samples["uncounted"]) == {1}


@pytest.mark.serial
@pytest.mark.services
@pytest.mark.covers("E-FR09")
def test_the_first_token_of_an_answer_is_stamped_apart_from_its_reasoning(known, tmp_path):
    truth_file = tmp_path / "truth"
    port = known("--reasoning-chunks=3", "--ttft-ms=5", "--gap-ms=10", f"--truth={truth_file}", "--chunk-tokens=2")
    asks = {"endpoint": "chat", "extra_body": '{"stream_options": {"continuous_usage_stats": true}}'}
    _, samples, _ = loaded(port, tmp_path, requests=40, **asks)
    between_ms = (samples["answer_ns"] - samples["first_ns"]) / 1e6
    assert np.median(between_ms) == pytest.approx(30, abs=5)
    assert set(samples["first_units"]) == {2}, "as the usage of the first chunk says"
    assert set(samples["uncounted"]) == {0}
    for _ in range(50):
        truth = read_truth(truth_file)
        if len(truth.number) >= 40:
            break
        time.sleep(0.1)
    assert np.median((truth.answer_ns - truth.first_ns) / 1e6) == pytest.approx(np.median(between_ms), abs=3)


@pytest.mark.services
def test_what_a_server_makes_of_prompts_is_asked_after_the_load(known, tmp_path):
    target = Target(settings={"prompt_len": 9, "batch": 2}, data=tmp_path, ports={"main": known()})
    assert quality(target, 3) == {"prompt_tokens_ratio": 1.0, "prompt_tokens_right_ratio": 1.0}
    with pytest.raises(ValueError, match="POST /nowhere/completions: HTTP 404"):
        quality(Target(settings={"base_path": "/nowhere"}, data=tmp_path, ports=target.ports), 3)
