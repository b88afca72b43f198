"""Lists at the leaves of a structure are factors, named by their dotted path; a driver has them in their place."""

import json
from pathlib import Path

import pytest
from shipped import SERVICES

from seamark.config.read import read_scenario, read_site
from seamark.errors import UserError
from seamark.model.scenario import filled
from seamark.model.trial import Plan, levels_of
from seamark.planning.plan import plan

ROOT = Path(__file__).parents[3]
SITE = read_site(ROOT / "config" / "sites" / "local.yaml")
THREADS = "command.environment.THREADS"


def planned(folder: Path, command: str, more: str = "") -> Plan:
    path = folder / "scenario.yaml"
    path.write_text(f"scenario: s\nrepetitions: 1\nworkload:\n  service: command\n  command: {command}\n{more}")
    return plan(read_scenario(path, SERVICES), SERVICES, SITE)


def environments(made: Plan) -> list[dict[str, object]]:
    return [json.loads(str(filled(trial.settings)["command"])).get("environment") for trial in made.trials]


def test_a_list_of_values_of_a_variable_is_a_factor_of_its_own(tmp_path: Path) -> None:
    made = planned(tmp_path, "{argv: [x], environment: {THREADS: [1, 2], MODE: [fast, slow], FIXED: 7}}")
    assert made.factors["workload"] == {THREADS: (1, 2), "command.environment.MODE": ("fast", "slow")}
    assert made.factors["deployment"] == {}
    found = sorted((each["THREADS"], each["MODE"], each["FIXED"]) for each in environments(made))
    assert found == [(1, "fast", "7"), (1, "slow", "7"), (2, "fast", "7"), (2, "slow", "7")]
    assert all(set(levels) == {THREADS, "command.environment.MODE"} for levels in levels_of(made).values())
    assert len({trial.config_hash for trial in made.trials}) == 4
    assert all("THREADS-" in trial.id for trial in made.trials)
    assert all("." not in name for trial in made.trials for name in filled(trial.settings))


def test_one_value_is_no_factor_and_a_list_of_one_measures_the_same(tmp_path: Path) -> None:
    one = planned(tmp_path, "{argv: [x], environment: {THREADS: 2}}")
    given = {name: value for name, value in one.trials[0].settings.items() if value is not None}
    assert given == {"command": one.trials[0].settings["command"], "limit_s": 3600.0}
    listed = planned(tmp_path, "{argv: [x], environment: {THREADS: [2]}}")
    assert environments(listed) == [{"THREADS": 2}]
    assert listed.factors["workload"] == {}


def test_treatments_are_excluded_and_added_by_the_dotted_path(tmp_path: Path) -> None:
    more = f"  exclude: [{{{THREADS}: 2}}]\n  include: [{{{THREADS}: 8}}]\n"
    made = planned(tmp_path, "{argv: [x], environment: {THREADS: [1, 2]}}", more)
    assert sorted(each["THREADS"] for each in environments(made)) == [1, 8]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            "[{name: a, argv: [x], environment: {N: [1, 2]}}, {name: b, argv: [x]}]",
            "has command.environment.N as a factor, which needs a command alone",
        ),
        ("{argv: [x], environment: {N: []}}", "an empty list has no level"),
        ("{argv: [x], environment: {N: [1, 1]}}", "the level 1 stands twice in the list"),
        ("{argv: [x], environment: {N: [1, {}]}}", "expected"),
        ("{argv: [x], environment: {N: ['{ports[main]}']}}", "'{ports[main]}' is not known"),
        ("{argv: [x], environment: {1N: 2}}", "'1N' is no name of a variable"),
    ],
)
def test_what_cannot_be_a_factor_is_one_line(tmp_path: Path, command: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        planned(tmp_path, command)
    assert any(said in line for line in caught.value.lines), caught.value.lines
    assert all(line.startswith(f"{tmp_path}/scenario.yaml:5:") for line in caught.value.lines)


def test_a_mix_has_no_leaf_that_is_a_factor(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text("scenario: s\nworkload:\n  service: known\n  mix: {a: {weight: 1, prompt_len: [1, 2]}}\n")
    with pytest.raises(UserError, match="a class has one value of each setting"):
        read_scenario(path, SERVICES)
