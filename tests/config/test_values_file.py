"""The values file of a recipe for a whole stack: where settings go, what is rendered, and mistakes before any job."""

from pathlib import Path

import pytest
import yaml
from messages import TOY

from seamark.config.read import read_scenario, read_services
from seamark.config.values_file import rendered
from seamark.errors import UserError

pytestmark = pytest.mark.covers("D1")
VALUES = """\
decode: {parallelism: {tensor: 1, data: null}, replicas: 1}
prefill: {parallelism: {tensor: 4}, enabled: false}
model: {name: a/b, flags: {x: 1}}
containers: [{image: one, port: 80}]
when: 2026-01-01
"""
OWN = """\
  tensor: {type: int, role: deployment, help: t, default: null, goes_to: [decode.parallelism.tensor]}
  model: {type: str, role: deployment, help: m, default: c/d, goes_to: [model.name, containers.0.image]}
  flags: {type: str, role: deployment, help: f, object: true, default: null, goes_to: [model.flags]}
  prefill: {type: bool, role: deployment, help: p, default: true, goes_to: [prefill.enabled]}
  key: {type: str, role: deployment, help: k, default: null, goes_to: []}
"""
SERVER = "server: {command: [toy, '{values}', '{settings[said]}'], values: stack/values.yaml}\n"
SAID = "  said: {type: str, role: deployment, help: s, default: x}\n"


def write(folder: Path, own: str = OWN, server: str = SERVER, values: str = VALUES) -> None:
    (folder / "stack").mkdir(exist_ok=True)
    (folder / "stack/values.yaml").write_text(values)
    (folder / "toy.yaml").write_text(TOY + own + SAID + server)


def test_settings_replace_their_places_with_types_kept_and_none_leaves_what_is_there(tmp_path: Path) -> None:
    write(tmp_path)
    toy = read_services(tmp_path)["toy"]
    settings = {"tensor": None, "model": "1e3", "flags": '{"a":true,"b":[1,"2"]}', "prefill": True, "key": "k"}
    expected = yaml.safe_load(VALUES)
    expected["model"] = {"name": "1e3", "flags": {"a": True, "b": [1, "2"]}}
    expected["containers"][0]["image"] = "1e3"
    expected["prefill"]["enabled"] = True
    assert rendered(toy, settings) == expected
    assert rendered(toy, {**settings, "tensor": 8})["decode"]["parallelism"] == {"tensor": 8, "data": None}
    assert rendered(toy, {**settings, "tensor": 8})["prefill"]["parallelism"] == {"tensor": 4}


def setting(goes_to: str, kind: str = "type: int", role: str = "deployment") -> str:
    return f"  own: {{{kind}, role: {role}, help: o, default: null, goes_to: {goes_to}}}\n"


@pytest.mark.parametrize(
    ("own", "path", "code"),
    [
        ("  own: {type: int, role: deployment, help: o}\n", "settings.own", "missing"),
        (setting("[decode.parallelism.tensr]"), "settings.own.goes_to[0]", "unknown_key"),
        (setting("[decode.replicas, containers.1.port]"), "settings.own.goes_to[1]", "unknown_key"),
        (setting("[decode.replicas.more]"), "settings.own.goes_to[0]", "unknown_key"),
        (setting("[decode.parallelism]"), "settings.own.goes_to[0]", "wrong_type"),
        (setting("[model.name]"), "settings.own.goes_to[0]", "wrong_type"),
        (setting("[prefill.enabled]"), "settings.own.goes_to[0]", "wrong_type"),
        (setting("[decode.replicas, decode.replicas]"), "settings.own.goes_to[1]", "conflict"),
        (
            setting("[model.flags.x]") + OWN.splitlines(keepends=True)[2],
            "settings.flags.goes_to[0]",
            "conflict",
        ),
        (setting("[decode.replicas]", role="workload"), "settings.own.goes_to", "conflict"),
    ],
)
def test_a_setting_without_a_place_or_with_a_wrong_one_is_a_mistake_with_its_line(
    tmp_path: Path, own: str, path: str, code: str
) -> None:
    write(tmp_path, own)
    with pytest.raises(UserError) as raised:
        read_services(tmp_path)
    [mistake] = raised.value.mistakes
    at = len(TOY.splitlines()) + own.count("\n")
    assert (mistake.path, mistake.code, mistake.line) == (path, code, at)


@pytest.mark.parametrize(
    ("own", "server", "path", "code"),
    [
        ("", SERVER.replace("stack/values", "stack/other"), "server.values", "no_such_file"),
        ("", SERVER.replace("{values}", "x"), "server.values", "missing"),
        (setting("[a.b]"), "server: {command: [toy, '{settings[said]}']}\n", "settings.own.goes_to", "missing"),
        ("", "server: {command: [toy, '{values}', '{settings[said]}']}\n", "server.command[1]", "invalid"),
    ],
)
def test_values_that_are_not_there_or_not_used_are_a_mistake(
    tmp_path: Path, own: str, server: str, path: str, code: str
) -> None:
    write(tmp_path, own, server)
    with pytest.raises(UserError) as raised:
        read_services(tmp_path)
    assert [(mistake.path, mistake.code) for mistake in raised.value.mistakes] == [(path, code)]


def test_na_of_another_method_is_no_level_of_a_setting_that_goes_to_the_file(tmp_path: Path) -> None:
    write(tmp_path)
    services = read_services(tmp_path)
    path = tmp_path / "tried.yaml"
    path.write_text("scenario: tried\nworkload:\n  service: toy\n  model: [a/b, NA]\n  said: NA\n")
    with pytest.raises(UserError) as raised:
        read_scenario(path, services)
    found = [(mistake.path, mistake.code, mistake.line) for mistake in raised.value.mistakes]
    assert found == [("workload.model[1]", "wrong_form", 4)]
