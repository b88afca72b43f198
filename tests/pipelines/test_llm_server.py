"""A stage behind a server of OpenAI's API, at its contract: a program that speaks it stands for the engine."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from seamark_pipelines.config.read import read_pipelines
from seamark_pipelines.flow.flow import Flow
from seamark_pipelines.model.query import Query
from seamark_pipelines.stages.llm_server import Inference, base_of, parameters_of

ENGINE = """\
#!{python}
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

words = sys.argv[1:]
assert words[0] == "serve", words
if words[1] == "broken":
    sys.exit(7)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(500 if asked["prompt"] == "fail" else 200)
        self.end_headers()
        if asked["prompt"] == "fail":
            self.wfile.write(b"no memory")
            return
        for text in ("yes ", f"{{asked['max_tokens']}} ", f"{{asked['temperature']}} ", asked["model"]):
            time.sleep(0.05)
            self.wfile.write(b"data: " + json.dumps({{"choices": [{{"text": text}}]}}).encode() + b"\\n\\n")
        usage = {{"choices": [], "usage": {{"completion_tokens": 9}}}}
        end = b"" if asked["prompt"] == "cut" else b"data: [DONE]\\n\\n"
        self.wfile.write(b"data: " + json.dumps(usage).encode() + b"\\n\\n" + end)

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(words[words.index("--port") + 1])), Handler).serve_forever()
"""
FILE = """\
pipelines:
  - name: served
    inputs: [0]
    outputs: [1]
    loadgen: {{component: loadgen.OfflineLoadScheduler}}
    stages:
      - name: grade
        id: 0
        outputs: [1]
        component: stages.llm_server.Inference
        config:
          server: {{engine: vllm, model: {model}, port: 0, max_model_len: 512, startup_timeout_s: 30}}
          concurrency: 4
          model: {{gen_kwargs: {{max_new_tokens: 3, do_sample: false}}}}
      - name: answer
        id: 1
        component: stages.llm_server.Inference
        config: {{depends_on_id: 0, model: {{gen_kwargs: {{max_new_tokens: 5, temperature: 0.5}}}}}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    program.write_text(ENGINE.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    yield tmp_path
    assert not [each for each in psutil.Process().children(recursive=True) if "serve" in each.cmdline()]


def opened(folder: Path, model: str) -> tuple[Flow, dict[int, Inference]]:
    (folder / "served.yml").write_text(FILE.format(model=model))
    pipeline = read_pipelines(folder / "served.yml").pipelines[0].with_settings({})
    varied = pipeline.with_settings({"stages.1.config.concurrency": 3})
    assert [stage.max_in_flight for stage in varied.stages] == [4, 3]
    assert [stage.max_in_flight for stage in pipeline.stages] == [4, 1]
    stages = {spec.id: Inference(spec, pipeline) for spec in pipeline.stages}
    for stage in stages.values():
        stage.stages = stages
        stage.prepare()
    flow = Flow(pipeline, stages, None, timeout_s=20)
    flow.start()
    return flow, stages


@pytest.mark.covers("A10")
def test_a_stage_starts_its_server_shares_it_and_ends_it(folder: Path) -> None:
    flow, stages = opened(folder, "m")
    try:
        query = Query(split="val", batch=0, query_submitted_timestamp=0.0, query_id=0, data="ask")
        ticket = flow.call(query, 0)
        assert ticket.error is None
        assert ticket.query.data == ["yes 5 0.5 m"], "the second stage asked with what the first was told"
        assert ticket.units == 18
        assert ticket.first_ns is not None
        failed = flow.call(Query(split="val", batch=1, query_submitted_timestamp=0.0, query_id=1, data=["fail"]), 1)
        assert failed.error is not None
        assert "500: no memory" in failed.error
        assert stages[1].base == stages[0].base
        cut = flow.call(Query(split="val", batch=2, query_submitted_timestamp=0.0, query_id=2, data="cut"), 2)
        assert cut.error is not None
        assert "in the middle" in cut.error
    finally:
        flow.stop()


@pytest.mark.covers("A10")
def test_an_engine_that_ends_or_is_not_there_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="exit code 7"):
        opened(folder, "broken")
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(ValueError, match=r"'vllm' is not here.*api_base"):
        opened(folder, "m")


@pytest.mark.parametrize(
    ("written", "base"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("http://h:1/", "http://h:1/v1"),
        ("https://h/v1", "https://h/v1"),
        (None, ""),
    ],
)
def test_an_address_gets_the_version_that_it_leaves_out(written: str | None, base: str) -> None:
    assert base_of(written) == base


def test_options_of_generate_have_the_names_of_the_api() -> None:
    assert parameters_of({"max_new_tokens": 7, "do_sample": False, "top_p": 0.9}) == {
        "max_tokens": 7,
        "temperature": 0,
        "top_p": 0.9,
    }
    assert parameters_of({"do_sample": True, "temperature": 0.3}) == {"temperature": 0.3}
