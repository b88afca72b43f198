"""Slurm and Apptainer together: a job serves and loads in images that were made before it was submitted."""

import json
from pathlib import Path

import pytest
from boxes import CLUSTER, python_base
from slurm_study import SlurmStudy

pytestmark = pytest.mark.cluster
SCENARIO = "config/scenarios/try.yaml"


@pytest.mark.sweep
@pytest.mark.covers("E1", "E-FR05", "E-MLX02", "E-AC05")
def test_a_job_of_slurm_serves_and_loads_in_images_that_were_there_before_it(
    apptainer: None, on_slurm: SlurmStudy, tmp_path: Path
) -> None:
    images = {"base": str(python_base()), "client": True}
    paths = {"containers": str(CLUSTER / "images"), "environments": str(tmp_path / "none")}
    on_slurm.write_site(runtime="apptainer", images=images, paths=paths)
    on_slurm.write(partition="cpu", resources={"gpus": 0}, repetitions=1)
    on_slurm.bench("prepare", "-c", SCENARIO, code=0)
    made = {path: path.stat().st_mtime_ns for path in (CLUSTER / "images").glob("*.sif")}

    on_slurm.measure(code=0)
    (job,) = on_slurm.jobs()
    assert job["JobState"] == "COMPLETED"
    metas = [json.loads((trial / "meta.json").read_text()) for trial in on_slurm.trials()]
    assert [on_slurm.json(f"{trial.name}/load.json")["status"] for trial in on_slurm.trials()] == ["ok", "ok"]
    assert {meta["slurm_job_id"] for meta in metas} == {job["JobId"]}
    for meta in metas:
        assert (meta["runtime"], meta["container"]["name"]) == ("apptainer", "client-built")
        assert meta["container_digest"].startswith("sha256:")
        assert Path(meta["client_container"]["path"]) in made
    assert {path: path.stat().st_mtime_ns for path in (CLUSTER / "images").glob("*.sif")} == made, "nothing is pulled"
    assert not (tmp_path / "none").exists(), "and no environment is made"
