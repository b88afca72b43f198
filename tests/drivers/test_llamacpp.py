"""llama.cpp's server from a wheel: the tiny model made for it, and real loads for text and for embeddings."""

from collections import Counter
from pathlib import Path

import pytest
from service_environment import ask, environment
from service_loads import deployed, loaded
from shipped import SERVICES

from seamark.drivers.openai.llamacpp import LlamaCpp, lacking
from seamark.errors import UserError
from seamark.load.driver import Target
from seamark.load.fetch import fetch
from seamark.model.sample import Failure

SMALL = {"max_model_len": 512, "max_num_seqs": 2}


def asking(server, **settings):
    """Return the endpoint of a server with other settings of its requests."""
    return {**server, "settings": server["settings"] | settings}


def test_a_model_that_is_no_file_and_an_endpoint_that_is_not_served_are_told(tmp_path: Path):
    model = tmp_path / "model.gguf"
    model.touch()
    good = {"model": str(model), "serves": "completions", "endpoint": "chat"}
    for settings in (good, {**good, "model": "tiny"}, {**good, "serves": "rerank", "endpoint": "rerank"}):
        assert list(lacking(settings)) == []
    assert [name for name, _ in lacking({**good, "model": f"{model}x"})] == ["model"]
    for serves, endpoint in [("completions", "embeddings"), ("embeddings", "chat"), ("embeddings", "rerank")]:
        assert [name for name, _ in lacking({**good, "serves": serves, "endpoint": endpoint})] == ["endpoint"]


def test_streamed_requests_have_a_connection_and_one_prompt_each():
    def made(**settings):
        return LlamaCpp(Target(settings=settings, data=Path(), ports={"http": 1}))

    head = b"Connection: close\r\n"
    assert head in made().encode(made().bodies(1, 1)[0])
    assert head not in made(stream=False).encode(made().bodies(1, 1)[0])
    assert made(endpoint="embeddings", batch=2).unit == "embedding"
    for stream in (True, False):
        with pytest.raises(UserError, match=r"^batch"):
            made(stream=stream, batch=2)


@pytest.mark.covers("E-FR20")
@pytest.mark.parametrize("name", ["sglang", "tgi", "infinity"])
def test_a_server_that_did_not_run_here_says_so_and_is_started_by_settings_that_it_has(name):
    recipe = SERVICES[name]
    assert recipe.unseen(contained=True)
    assert recipe.unseen(contained=False)
    words = " ".join(recipe.container.command)
    names = {setting.name for setting in recipe.settings if setting.role == "deployment"}
    assert {part.partition("]")[0] for part in words.split("settings[")[1:]} == names - {"tls", "tls_ca_file"}


@pytest.mark.services
@pytest.mark.sweep
def test_a_tiny_model_is_the_same_byte_for_byte_for_a_seed_alone(tmp_path: Path):
    digests = [
        ask(environment("llamacpp"), "inside_llamacpp", "written", path=str(tmp_path / f"{number}"), seed=seed)
        for number, seed in enumerate([1, 1, 2])
    ]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.covers("E-FR20", "E-FR21")
@pytest.mark.services
def test_every_reply_to_a_text_of_exact_length_has_the_tokens_that_were_asked_for(tmp_path: Path):
    with deployed("llamacpp", tmp_path, **SMALL) as server:
        assert server["facts"]["model_vocabulary"] == 32_000
        outcome, samples = loaded(
            server, tmp_path / "parts", prompt_form="text", prompt_len=60, gen_tokens=20, requests=8
        )
        status = fetch(server["host"], server["ports"]["http"], "/metrics", limit_s=10.0)
    assert Counter(samples["failure"].tolist()) == {Failure.NONE: 8}
    assert set(samples["units"].tolist()) == {20}
    assert outcome.unit == "token"
    assert outcome.quality == {"prompt_tokens_ratio": 1, "prompt_tokens_right_ratio": 1}
    assert b"llamacpp:tokens_predicted_total" in status.body


@pytest.mark.covers("E-FR20")
@pytest.mark.services
@pytest.mark.sweep
@pytest.mark.parametrize("changes", [{"endpoint": "chat"}, {"stream": False}, {"ignore_eos": False}])
def test_other_forms_of_requests_are_answered_too(changes, server, tmp_path: Path):
    server["renew"]()
    _, samples = loaded(asking(server, **changes), tmp_path, prompt_len=40, gen_tokens=8, requests=4)
    assert Counter(samples["failure"].tolist()) == {Failure.NONE: 4}
    assert set(samples["units"].tolist()) == {8}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with deployed("llamacpp", tmp_path_factory.mktemp("llamacpp"), **SMALL) as endpoint:
        yield endpoint


@pytest.mark.covers("E-FR20")
@pytest.mark.services
@pytest.mark.sweep
def test_embeddings_are_counted_as_such_and_a_text_has_the_tokens_of_its_length(tmp_path: Path):
    with deployed("llamacpp", tmp_path, serves="embeddings", **SMALL) as server:
        outcome, samples = loaded(
            asking(server, endpoint="embeddings"), tmp_path / "parts", prompt_len=40, batch=3, requests=8
        )
    assert outcome.unit == "embedding"
    assert Counter(samples["failure"].tolist()) == {Failure.NONE: 8}
    assert set(samples["units"].tolist()) == {3}
    assert outcome.quality == {"prompt_tokens_ratio": 1, "prompt_tokens_right_ratio": 1}
