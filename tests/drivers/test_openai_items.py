"""Embeddings and scores of documents as workloads: requests, replies, and a load on a server of tests."""

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from shipped import SERVICES

from seamark.drivers.openai.driver import OpenAi, quality
from seamark.errors import UserError
from seamark.load.coordinator.coordinator import LoadJob, run_load
from seamark.load.driver import Target
from seamark.load.engine.http import HttpDecoder
from seamark.load.workers.records import read_segments
from seamark.model.sample import Failure


def target(port=8000, **settings):
    settings = {"model": "m", "prompt_len": 5, **settings}
    settings["extra_body"] = json.dumps(settings.get("extra_body") or {})
    return Target(settings=settings, data=Path(), host="127.0.0.1", ports={"http": port})


def asked(**settings):
    made = OpenAi(target(**settings))
    head, _, body = made.encode(made.bodies(1, seed=1)[0]).partition(b"\r\n\r\n")
    return made, head.split(b" HTTP")[0].decode(), json.loads(body)


def decoded(made: OpenAi, document) -> tuple[int, Failure]:
    decoder = made.decoder()
    assert isinstance(decoder, HttpDecoder)
    body = json.dumps(document).encode()
    assert decoder.feed(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    return decoder.units, decoder.failure


def embeddings(*vectors):
    return {"data": [{"index": at, "embedding": vector} for at, vector in enumerate(vectors)]}


def scores(**by_index):
    return {"results": [{"index": int(at[1:]), "relevance_score": score} for at, score in by_index.items()]}


@pytest.mark.covers("E-FR20")
def test_texts_are_sent_for_embeddings_and_no_field_of_a_completion_with_them():
    made, line, document = asked(endpoint="embeddings", batch=3, extra_body={"dimensions": 8}, gen_tokens=9)
    assert (line, made.unit, made.kinds) == ("POST /v1/embeddings", "embedding", ["embeddings"])
    assert document.keys() == {"model", "input", "dimensions"}
    assert [len(text.split()) for text in document["input"]] == [5, 5, 5]
    assert (made.asked_units, made.decoder().streams) == (3, False)
    ids = asked(endpoint="embeddings", prompt_form="ids")[2]["input"]
    assert [type(token) for token in ids] == [int] * 5


@pytest.mark.covers("E-FR20")
def test_a_rerank_has_a_query_beside_its_documents():
    made, line, document = asked(endpoint="rerank", batch=3)
    assert (line, made.unit) == ("POST /v1/rerank", "document")
    assert document.keys() == {"model", "query", "documents"}
    assert [len(text.split()) for text in (document["query"], *document["documents"])] == [5] * 4
    assert len({document["query"], *document["documents"]}) == 4
    assert made.asked_units == 3


@pytest.mark.parametrize(
    ("document", "worth"),
    [
        (embeddings([1, 0.5], [0, 2]), (2, Failure.NONE)),
        (embeddings("AAAA", "AAAB"), (2, Failure.NONE)),
        ({"data": embeddings([1.0], [2.0])["data"][::-1]}, (2, Failure.NONE)),
        (embeddings([1, 0.5]), Failure.WRONG_REPLY),
        (embeddings([1], [2], [3]), Failure.WRONG_REPLY),
        (embeddings([1, 0.5], [1]), Failure.WRONG_REPLY),
        (embeddings([], []), Failure.WRONG_REPLY),
        (embeddings([1], [float("nan")]), Failure.WRONG_REPLY),
        (embeddings([1], [None]), Failure.WRONG_REPLY),
        ({"data": embeddings([1])["data"] * 2}, Failure.WRONG_REPLY),
        ({"error": {"message": "no"}}, Failure.WRONG_REPLY),
        ([1], Failure.WRONG_REPLY),
    ],
)
def test_a_reply_is_worth_its_embeddings_if_all_are_there(document, worth):
    units, failure = decoded(asked(endpoint="embeddings", batch=2)[0], document)
    assert (failure if worth is Failure.WRONG_REPLY else (units, failure)) == worth


@pytest.mark.parametrize(
    ("document", "top", "failure"),
    [
        (scores(d1=0.5, d0=-3), None, Failure.NONE),
        (scores(d1=0.5), 1, Failure.NONE),
        (scores(d1=0.5), None, Failure.WRONG_REPLY),
        (scores(d1=0.5, d2=0.1), None, Failure.WRONG_REPLY),
        (scores(d0=float("inf"), d1=0), None, Failure.WRONG_REPLY),
        ({"results": scores(d1=1)["results"] * 2}, None, Failure.WRONG_REPLY),
        ({"results": []}, 1, Failure.WRONG_REPLY),
    ],
)
def test_a_rerank_is_worth_the_documents_that_were_compared(document, top, failure):
    extra = {} if top is None else {"extra_body": {"top_n": top}}
    units, found = decoded(asked(endpoint="rerank", batch=2, **extra)[0], document)
    assert found == failure
    assert units == 2 or failure


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"endpoint": "rerank", "prompt_form": "ids"}, "prompt_form"),
        ({"endpoint": "embeddings", "turns": 2}, "turns"),
        ({"endpoint": "embeddings", "extra_body": {"input": "x"}}, "extra_body"),
        ({"endpoint": "embeddings", "extra_body": {"x": "{max_tokens}"}}, "extra_body"),
    ],
)
def test_what_has_no_meaning_for_them_is_refused(settings, told):
    with pytest.raises(UserError, match=f"^{told}"):
        asked(**settings)


class Ranks(BaseHTTPRequestHandler):
    """Answers /v1/rerank with a score for each document, the best first, and /v1/embeddings with lengths."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/rerank":
            shared = [len(set(text.split()) & set(document["query"].split())) for text in document["documents"]]
            order = sorted(range(len(shared)), key=lambda at: -shared[at])
            answer = {"results": [{"index": at, "relevance_score": shared[at]} for at in order]}
        else:
            answer = embeddings(*([len(text), 1.0] for text in document["input"]))
            answer["usage"] = {"prompt_tokens": sum(len(text.split()) for text in document["input"])}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.mark.covers("E-FR20")
@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize(("endpoint", "unit"), [("embeddings", "embedding"), ("rerank", "document")])
def test_a_load_by_the_recipe_of_infinity_counts_what_a_server_answered(endpoint, unit, tmp_path: Path):
    recipe = SERVICES["infinity"]
    settings = {setting.name: setting.default for setting in recipe.settings}
    load = {"pattern": "closed", "concurrency": 2, "warmup_s": 0.0, "duration_s": 60.0, "requests": 20}
    with ThreadingHTTPServer(("127.0.0.1", 0), Ranks) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        job = LoadJob(
            driver=recipe.driver,
            workers=recipe.workers,
            settings={**settings, **load, "timeout_s": 10.0, "endpoint": endpoint, "batch": 4, "prompt_len": 6},
            seed=0,
            data=tmp_path,
            host="127.0.0.1",
            ports={"http": server.server_port},
        )
        outcome = run_load(job, parts=tmp_path / "parts")
        checked = quality(target(server.server_port, endpoint=endpoint, batch=4, timeout_s=10.0), 1)
        server.shutdown()
    samples = read_segments(outcome.segments)
    assert outcome.unit == unit
    assert Counter(samples["failure"].tolist()) == {Failure.NONE: 20}
    assert set(samples["units"].tolist()) == {4}
    assert checked == ({} if endpoint == "rerank" else {"prompt_tokens_ratio": 1, "prompt_tokens_right_ratio": 1})
