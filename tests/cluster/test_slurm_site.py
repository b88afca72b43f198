"""`bench init --site` on a real Slurm, and what a run then asks of it."""

from pathlib import Path

import pytest
import yaml
from slurm_accounting import ACCOUNT
from slurm_study import SlurmStudy

pytestmark = pytest.mark.cluster


@pytest.mark.covers("E-MR01", "E-MR02", "E-MLX01", "E-VAL")
def test_a_site_is_filled_by_asking_its_slurm_and_serves_to_plan(on_slurm: SlurmStudy, tmp_path: Path) -> None:
    init = tmp_path / "lmod" / "init"
    init.mkdir(parents=True)
    (init / "bash").write_text("module() { echo Apptainer/1.3.6 >&2; }\n")
    told = {**(on_slurm.environment or {}), "LMOD_PKG": str(init.parent)}
    done = on_slurm.bench("init", "--site", "here", env=told, code=0)
    site = yaml.safe_load((on_slurm.root / "config" / "sites" / "here.yaml").read_text())
    node = {"nodes": 2, "cpus": 4, "mem_gb": 15, "gpus": 4}
    day_s = 24 * 3600
    assert site["partitions"] == {
        name: node | {"time_limit_s": limit_s}
        for name, limit_s in (("all", day_s), ("cpu", day_s), ("gpu", day_s // 2))
    }
    assert site["qos"] == {"normal": None, "default": 7200, "short": 1800, "test": 1800}
    assert site["qos_max_submit"] == {"default": 100, "short": 3, "test": 1}
    assert (site["runtime"], site["modules"], site["module_init"]) == (
        "apptainer",
        ["Apptainer/1.3.6"],
        str(init / "bash"),
    )
    assert ACCOUNT in done.stdout

    on_slurm.write(site="here", qos="shorter", partition="gpus")
    refused = on_slurm.bench("plan", "-c", "config/scenarios/try.yaml", code=2)
    assert "Did you mean 'short'?" in refused.stderr
    assert "Did you mean 'gpu'?" in refused.stderr
    on_slurm.write(site="here")
    assert on_slurm.bench("plan", "-c", "config/scenarios/try.yaml").returncode == 0

    again = on_slurm.bench("init", "--site", "here", env=told, code=2)
    assert "--force" in again.stderr


def test_without_slurm_a_site_cannot_be_asked(on_slurm: SlurmStudy) -> None:
    done = on_slurm.bench("init", "--site", "here", env={"PATH": "/usr/bin:/bin"}, code=3)
    assert "login node" in done.stderr
    assert not (on_slurm.root / "config" / "sites" / "here.yaml").exists()
