"""A site whose loads a Dask cluster carries: the trials of a scenario, and a one-off load."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "load"))
from clusters import dask, environment

pytestmark = [pytest.mark.services, pytest.mark.e2e]


@pytest.mark.sweep
@pytest.mark.covers("E-FR25", "E-CLI01")
def test_trials_are_carried_by_the_cluster_of_their_site_and_say_where_they_were(study, tmp_path):
    load = {"pattern": "poisson", "rate_rps": 200, "concurrency": 8, "shards": 4, "duration_s": 2}
    study.write(workload=load, repetitions=1)
    python = environment("dask") / "bin" / "python"
    site = study.root / "config" / "sites" / "farm.yaml"
    submit = ("submit", "-c", "config/scenarios/try.yaml", "--site", "farm")
    with dask(tmp_path, [2, 2]) as (address, _):
        named = (
            f"name: farm\nsummary: a cluster\ncarrier: dask\ncarrier_address: {address}\ncarrier_python: {python}\n"
        )
        site.write_text(named)
        study.bench(*submit, code=0)
        [trial] = study.trials()
        measured, meta = study.json(f"{trial.name}/load.json"), study.json(f"{trial.name}/meta.json")
        assert [(each["carrier"], each["ok"]) for each in measured["workers"]] == [("dask", True)] * 4
        assert [each["worker"] for each in meta["shards"]] == [0, 1, 2, 3]
        assert all(0 < each["offset_error_ns"] < 10**9 for each in meta["shards"])
        metrics = study.json(f"{trial.name}/metrics.json")
        assert metrics["offered_rps"] == pytest.approx(200, rel=0.25)
        assert metrics["counts"]["ok"] > 100
    study.write(workload=load | {"rate_rps": 201}, repetitions=1)
    assert study.bench(*submit).returncode != 0
    [lost] = [each for each in study.trials() if each != trial]
    failed = study.json(f"{lost.name}/load.json")
    assert failed["status"] == "failed"
    assert "no Dask scheduler answers" in json.dumps(failed["reason"])
