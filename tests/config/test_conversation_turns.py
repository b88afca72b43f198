"""Sessions in a scenario: who may have them, and when users think."""

from pathlib import Path

import pytest
from shipped import SERVICES

from seamark.config.read import read_scenario, read_site
from seamark.errors import UserError
from seamark.model.trial import Plan
from seamark.planning.plan import plan

ROOT = Path(__file__).parents[2]
SITE = read_site(ROOT / "config" / "sites" / "local.yaml")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def planned(*lines: str, service: str = "known") -> Plan:
    text = ["scenario: talks", "repetitions: 1", "workload:", f"  service: {service}", *(f"  {x}" for x in lines)]
    Path("talks.yaml").write_text("\n".join(text) + "\n", encoding="utf-8")
    return plan(read_scenario(Path("talks.yaml"), SERVICES), SERVICES, SITE)


def test_users_think_between_turns_in_an_open_loop_too() -> None:
    rate = ("pattern: poisson", "rate_rps: 5", "think_time_s: 2")
    with pytest.raises(UserError, match=r"think_time_s: has no effect with the pattern 'poisson'.* Or have sessions"):
        planned(*rate)
    [trial] = planned(*rate, "turns: 4").trials
    assert (trial.settings["turns"], trial.settings["think_time_s"]) == (4, 2.0)


def test_a_pause_that_no_turn_has_does_not_tell_treatments_apart() -> None:
    trials = planned("pattern: poisson", "rate_rps: 5", "turns: [1, 3]", "think_time_s: [1, 2]").trials
    assert sorted((x.settings["turns"], x.settings["think_time_s"]) for x in trials) == [(1, 0.0), (3, 1.0), (3, 2.0)]


@pytest.mark.covers("E-VAL")
@pytest.mark.parametrize("service", ["postgres", "fileio"])
def test_sessions_of_a_driver_in_threads_are_a_mistake(service: str) -> None:
    with pytest.raises(UserError) as caught:
        planned("turns: 2", service=service)
    assert f"workload.turns: sessions need a driver that sends from an event loop; that of {service}" in str(
        caught.value
    )


def test_turns_are_at_least_one_and_few() -> None:
    with pytest.raises(UserError, match="turns: 0 is too small: at least 1"):
        planned("turns: 0")
    with pytest.raises(UserError, match="turns: 101 is too large"):
        planned("turns: 101")
