"""Files of model servers: read whole, or refused with every mistake and its line."""

import pytest

from seamark.errors import UserError
from seamark_simulate.config.model_servers import read_model_servers

MODELS = ("llm7b", "stable_diffusion")


def mistakes(path, text, used=MODELS):
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as raised:
        read_model_servers(path, MODELS, used)
    return list(raised.value.lines)


@pytest.mark.covers("C2")
def test_a_file_gives_each_model_a_service_and_settings(tmp_path):
    path = tmp_path / "servers.yaml"
    path.write_text("models:\n  llm7b: {service: known, settings: {ttft_ms: 5}}\n", encoding="utf-8")
    file = read_model_servers(path, MODELS, ["llm7b"])
    assert file.site == "local"
    assert (file.models["llm7b"].service, file.models["llm7b"].settings) == ("known", {"ttft_ms": 5})


@pytest.mark.covers("C2")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("models: {llm7b: {service: known}}", ":1: models: the model 'stable_diffusion' is in use and has no server"),
        ("site: local", ":1: the key 'models' is missing"),
        ("models: [llm7b]", ":1: models: expected keys and values, but it is a list"),
        (
            "models:\n  llm7b: {service: known}\n  stable_difusion: {service: known}\n",
            ":3: models.stable_difusion: no model has the id 'stable_difusion'. Did you mean 'stable_diffusion'?",
        ),
        ("models:\n  llm7b: {settings: {}}\n", ":2: models.llm7b: the key 'service' is missing"),
        ("models:\n  llm7b: {service: known, setting: {}}\n", ":2: models.llm7b.setting: unknown key. Did you mean"),
        ("models:\n  llm7b: {service: known, settings: {ttft_ms: [1, 2]}}\n", "expected one value, but it is a list"),
        ("models:\n  llm7b: {service: 3}\n", ":2: models.llm7b.service"),
        ("model: {}\n", ":1: model: unknown key. Did you mean 'models'?"),
    ],
)
def test_a_wrong_file_is_refused_with_place_and_remedy(tmp_path, text, expected):
    found = mistakes(tmp_path / "servers.yaml", text)
    assert any(expected in line for line in found), found
    assert all("\n" not in line for line in found)


@pytest.mark.covers("C2")
def test_all_mistakes_of_a_file_are_reported_at_once(tmp_path):
    found = mistakes(tmp_path / "servers.yaml", "models:\n  lm7b: {service: known}\n  stable_diffusion: {}\n")
    assert len(found) == 3, found
