"""Hooks of drivers, run in another process: facts come back, failures say why, nothing is left behind."""

from pathlib import Path

import pytest
from processes import load_workers

from seamark.load.coordinator.coordinator import PreparationError, run_preparation
from seamark.load.driver import Target
from seamark.load.workers.hooks import LONGEST_REASON

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _odd_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))


def test_a_hook_returns_its_facts_whatever_it_prints(tmp_path: Path) -> None:
    target = Target(settings={"size": 4}, data=tmp_path)
    facts = run_preparation("stage", "odd_drivers:Sleeping", target, 9, None)
    assert facts == {"seed": 9, "size_bytes": 12, "setting": 4}


def test_a_module_without_the_hook_has_no_facts(tmp_path: Path) -> None:
    target = Target(settings={}, data=tmp_path)
    assert run_preparation("populate", "seamark.drivers.null:Null", target, 1, None) == {}


def test_a_hook_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(PreparationError, match="disk quota exceeded") as raised:
        run_preparation("populate", "odd_drivers", Target(settings={}, data=tmp_path), 1, None)
    assert "exit code 1" in raised.value.reason


@pytest.mark.covers("E-SEC")
def test_a_secret_is_not_cut_in_two_where_a_reason_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "hunter-of-hooks-22")
    says = f"{'x' * (LONGEST_REASON - len('RuntimeError: ') - 7)} hunter-of-hooks-22"
    with pytest.raises(PreparationError) as raised:
        run_preparation("populate", "odd_drivers", Target(settings={"says": says}, data=tmp_path), 1, None)
    assert raised.value.reason.endswith("xxx ***")


def test_a_hook_is_ended_when_the_deployment_is_given_up(tmp_path: Path) -> None:
    def on_tick() -> None:
        raise RuntimeError("server died")

    target = Target(settings={"sleep_s": 1}, data=tmp_path)
    with pytest.raises(RuntimeError, match="server died"):
        run_preparation("populate", "odd_drivers", target, 1, None, on_tick=on_tick)
    assert not load_workers()
