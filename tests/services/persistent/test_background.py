"""`bench start`, `bench status` and `bench stop`: a run in the background, its parts, and its end."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import eventually
from standing_study import StandingStudy, standing_study

pytestmark = [pytest.mark.services, pytest.mark.e2e]


@pytest.fixture
def study(tmp_path: Path) -> Iterator[StandingStudy]:
    with standing_study(tmp_path / "study") as study:
        yield study


def parts(study: StandingStudy, name: str) -> list[dict[str, Any]]:
    """Return the components that `bench status` shows."""
    shown = study.bench("status", "-c", f"config/scenarios/{name}.yaml", "--json")
    found: list[dict[str, Any]] = json.loads(shown.stdout)["components"]
    return found


@pytest.mark.sweep
@pytest.mark.covers("E-INT02", "E-INT03", "E-INT04", "E-MON01")
def test_start_runs_a_scenario_in_the_background_from_servers_to_report(study: StandingStudy) -> None:
    study.scenario("try", workload={"duration_s": 2.0})
    started = study.bench("start", "try", "--json", code=0)
    assert json.loads(started.stdout)["running"]

    def serves() -> bool:
        kinds = {each["kind"]: each for each in parts(study, "try")}
        if not {"run", "server", "monitor", "log"} <= kinds.keys():
            return False
        assert kinds["server"]["where"].startswith("127.0.0.1:")
        assert kinds["monitor"]["state"] == "sampling"
        return True

    assert eventually(serves, 30)
    again = study.bench("start", "try")
    assert (again.returncode, "another run is at work here" in again.stderr) == (2, True)
    page = study.root / "reports" / "try" / "index.html"
    assert eventually(lambda: page.exists() and study.processes() == [], 60)
    assert [each["kind"] for each in parts(study, "try")] == ["log"]


@pytest.mark.sweep
@pytest.mark.covers("E-INT03", "E-SVR06")
def test_stop_ends_a_background_run_and_leaves_a_persistent_server_unless_all_is_asked(study: StandingStudy) -> None:
    study.started("null", "--name", "one")
    study.scenario("try", workload={"duration_s": 30.0})
    assert study.bench("start", "-c", "config/scenarios/try.yaml").returncode == 0
    assert eventually(lambda: sum(each["kind"] == "server" for each in parts(study, "try")) == 2, 30)
    stopped = study.bench("stop", "-c", "config/scenarios/try.yaml", code=0)
    assert "Still running: persistent server one" in stopped.stdout
    assert [(each["kind"], each["name"]) for each in parts(study, "try")][:-1] == [
        ("server", "one"),
        ("monitor", "one"),
    ]
    assert study.bench("stop", "-c", "config/scenarios/try.yaml", "--all").returncode == 0
    assert eventually(lambda: study.processes() == [], 15)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("tri",), 2, "Did you mean 'try'?"),
        (("try", "-c", "config/scenarios/null.yaml"), 2, "given twice"),
        (("try", "--site", "small"), 3, "1 kB left"),
    ],
)
def test_a_start_that_cannot_go_well_says_so_at_once(
    study: StandingStudy, words: tuple[str, ...], code: int, said: str
) -> None:
    study.scenario("try", workload={"pattern": "constant", "rate_rps": 1000, "concurrency": 1, "duration_s": 60})
    study.site("small", quota_command="echo 1000")
    done = study.bench("start", *words)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert study.processes() == []
