"""`ntasks`, `gres` and `paths.metrics`: what a job asks for, and where metrics lie."""

from pathlib import Path

import pytest

from seamark.dispatch.job import resources_of
from seamark.dispatch.slurm.commands import sbatch_options
from seamark.errors import UserError
from seamark.planning.study import Study

SCENARIO = """
scenario: try
partition: gpu
account: p200000
{top}
resources: {{nodes: 2, gpus: 8, cpus_per_task: 16, mem_gb: 32}}
workload: {{service: vllm_ray, model: some/model, tensor_parallel: 4, pipeline_parallel: 2, duration_s: 1}}
"""


def study(root: Path, top: str) -> Study:
    (root / "try.yaml").write_text(SCENARIO.format(top=top))
    return Study.at(root, scenario="try.yaml", site="meluxina")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORK", str(tmp_path / "work"))


@pytest.mark.covers("E-SVR02", "E-FR04", "E-MLX01")
@pytest.mark.parametrize(
    ("top", "asked"), [("ntasks: 8\ngres: gpu:a100", (8, "gpu:a100:4")), ("", (2, "gpu:4"))], ids=["given", "default"]
)
def test_a_scenario_says_how_many_tasks_its_jobs_have_and_which_gpus(tmp_path: Path, top: str, asked: object):
    made = study(tmp_path, top)
    [deployment] = {deployment.name: deployment for deployment in made.plan.deployments}.values()
    options = sbatch_options(resources_of(made.plan, deployment, made.services["vllm_ray"]), made.site)
    assert (options["ntasks"], options["gres"]) == asked
    plain = study(tmp_path, "").plan.trials
    assert [trial.id for trial in made.plan.trials] == [trial.id for trial in plain]


@pytest.mark.covers("E-SVR02", "E-VAL")
@pytest.mark.parametrize("top", ["ntasks: 3", "ntasks: 32", "gres: tpu", "ntasks: 0"])
def test_tasks_that_do_not_fit_the_nodes_and_other_devices_are_refused_with_their_line(tmp_path: Path, top: str):
    with pytest.raises(UserError) as caught:
        study(tmp_path, top).plan  # noqa: B018
    [line] = caught.value.lines
    assert line.startswith(f"try.yaml:5: {top.split(':')[0]}: ")


@pytest.mark.covers("E-MON03")
def test_metrics_of_meluxina_lie_in_a_folder_of_its_own(tmp_path: Path):
    assert study(tmp_path, "").metrics == tmp_path / "work/metrics"
