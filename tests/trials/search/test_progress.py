"""A search that runs is seen to move: which probe it is at, and how much of its budget is spent."""

from pathlib import Path

import pytest
from shipped import SERVICES

from seamark.config.read import read_scenario, read_site
from seamark.planning.plan import plan
from seamark.storage.documents import write_json
from seamark.storage.paths import ScenarioFolder
from seamark.trials.progress import progress

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("running", "detail"),
    [({"probe": 4, "level": 120.0}, "probe 4, 120 requests/s, 18 of 45 s"), (None, None)],
)
def test_the_progress_of_a_search_is_its_probe_and_the_share_of_its_budget(tmp_path, running, detail):
    scenario = read_scenario(ROOT / "config" / "scenarios" / "search_known.yaml", SERVICES)
    planned = plan(scenario, SERVICES, read_site(ROOT / "config" / "sites" / "local.yaml"))
    folder = ScenarioFolder(root=tmp_path)
    trial = folder.trial(planned.trials[0].id)
    trial.own_parts.mkdir(parents=True)
    write_json(trial.search, {"setting": "rate_rps", "running": running, "spent_s": 18.1, "budget_s": 45.0})
    found = progress(planned, folder)
    assert found.states[0].state == "running"
    assert found.states[0].detail == detail
    assert (found.done, found.part) == (0, pytest.approx(18.1 / 45))
