"""A mapping of options of a server: how a scenario writes it, and what a recipe may do with it."""

from pathlib import Path

import pytest
from messages import TOY
from shipped import SERVICES

from seamark.config.read import read_scenario, read_services
from seamark.errors import UserError
from seamark.model.scenario import Scenario


def scenario(folder: Path, written: str) -> Scenario:
    path = folder / "tried.yaml"
    path.write_text(f"scenario: tried\nworkload:\n  service: postgres\n  server_settings: {written}\n")
    return read_scenario(path, SERVICES)


@pytest.mark.covers("E-FR17")
def test_the_levels_of_options_are_one_text_in_whatever_order_they_are_written(tmp_path: Path) -> None:
    [workload] = scenario(tmp_path, "[{work_mem: 64MB, synchronous_commit: off}, {work_mem: 1GB}]").workloads
    levels = ('{"synchronous_commit":false,"work_mem":"64MB"}', '{"work_mem":"1GB"}')
    assert workload.levels["server_settings"] == levels


@pytest.mark.covers("E-FR17")
@pytest.mark.parametrize(
    ("written", "path", "code"),
    [
        ("{fsync: off}", "server_settings.fsync", "conflict"),
        ("{Shared_Buffers: 1GB}", "server_settings.Shared_Buffers", "conflict"),
        ("[{work_mem: 64MB}, {port: 1}]", "server_settings[1].port", "conflict"),
        ("{work_mem: [64MB, 1GB]}", "server_settings.work_mem", "wrong_type"),
        ("{work_mem: null}", "server_settings.work_mem", "wrong_type"),
        ("{1x: 1}", "server_settings.1x", "invalid"),
        ("work_mem=64MB", "server_settings", "wrong_type"),
    ],
)
def test_a_wrong_option_of_a_server_is_a_mistake_with_its_line(
    tmp_path: Path, written: str, path: str, code: str
) -> None:
    with pytest.raises(UserError) as raised:
        scenario(tmp_path, written)
    assert [(each.path, each.code, each.line) for each in raised.value.mistakes] == [(f"workload.{path}", code, 4)]


@pytest.mark.parametrize("word", ["{options[way]}", "{options[weigh]}", "--x={options[own]}"])
def test_options_are_the_entries_of_an_object_as_words_of_their_own(tmp_path: Path, word: str) -> None:
    own = "  own: {type: str, role: deployment, object: true, help: Options.}\n"
    (tmp_path / "toy.yaml").write_text(f"{TOY}{own}server:\n  command: [toy, '{word}']\n")
    with pytest.raises(UserError) as raised:
        read_services(tmp_path)["toy"]
    assert [each.path for each in raised.value.mistakes] == ["server.command[1]"]
