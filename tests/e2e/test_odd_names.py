"""Whole runs in folders, and of files, whose names mean something to a shell, to Snakemake or to YAML."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from study_folder import StudyFolder

import seamark

pytestmark = pytest.mark.e2e
ODD = (
    *("it's", "a b", "{x}", "a:b", "a#b", "a*b", "a[b]", "a?b", "ünï", "$HOME", "x'; touch P; echo '", "`touch P`"),
    *('a"b', "a\\b", "a%b", "{wildcards}", "-a", "a: b", "a&b;c|d", "~", "a,b"),
)
INJECTING = "x'; touch P; echo '"


def study_in(root: Path, **workload: object) -> StudyFolder:
    """Make a study of one trial."""
    study = StudyFolder.new(root)
    study.write(repetitions=1, workload={"concurrency": 1, **workload})
    return study


def with_files_of_its_own(study: StudyFolder) -> StudyFolder:
    """Put the shipped files into the study, as a checkout has them."""
    shipped = Path(seamark.__file__ or "").parent / "shipped"
    for name in ("scripts", "workflow", "envs"):
        shutil.copytree(shipped / name, study.root / name)
    return study


def assert_measured(study: StudyFolder, file: str = "config/scenarios/try.yaml") -> None:
    study.bench("submit", "--config", file, pages=True, code=0)
    assert (study.root / "reports/try/index.html").exists()
    assert not list(study.root.parent.rglob("P")), "a name was run as a program"


@pytest.mark.sweep
@pytest.mark.parametrize("name", [f"{INJECTING}a[b]{{x}}: #", INJECTING, "a[b]", "{x}: #"])
@pytest.mark.services
def test_a_study_runs_in_a_folder_of_any_name_and_its_path_is_not_run_by_a_recipes_shell(
    tmp_path: Path, name: str
) -> None:
    study = study_in(tmp_path / name, component="storage", service="s3", duration_s=0.5)
    assert_measured(with_files_of_its_own(study))


@pytest.mark.sweep
@pytest.mark.parametrize("name", ['it"s:#{c}\\', "a: b#{c}", 'it"s\\'])
def test_a_scenario_and_a_site_may_be_in_files_of_any_name(tmp_path: Path, name: str) -> None:
    study = study_in(tmp_path / "study")
    scenario, site = study.root / f"{name}.yaml", study.root / "config/sites" / f"{name}.yaml"
    local = yaml.safe_load((study.root / "config/sites/local.yaml").read_text())
    site.write_text(yaml.safe_dump(local | {"name": name}))
    told = yaml.safe_load((study.root / "config/scenarios/try.yaml").read_text())
    scenario.write_text(yaml.safe_dump(told | {"site": name} if " " not in name else told))
    if " " in name:
        study.bench("submit", "-c", scenario.name, "--site", name, code=0)
    else:
        assert_measured(study, scenario.name)


@pytest.mark.sweep
def test_results_may_lie_where_the_path_needs_quotes(tmp_path: Path) -> None:
    study = study_in(tmp_path / "study")
    site = study.root / "config/sites/local.yaml"
    names = ("results", "reports", "metrics", "scratch")
    paths = {name: str(tmp_path / f"{INJECTING} [*]" / name) for name in names}
    site.write_text(yaml.safe_dump(yaml.safe_load(site.read_text()) | {"paths": paths}))
    study.submit(code=0)
    assert Path(paths["reports"], "try", "index.html").exists()
    assert list(Path(paths["metrics"]).rglob("*.prom"))


@pytest.mark.sweep
@pytest.mark.parametrize("service", ["null", "postgres", "s3"])
@pytest.mark.parametrize("name", ODD)
def test_every_odd_folder_bears_every_recipe(
    tmp_path: Path, service: str, name: str, counted: Callable[[str, str], None]
) -> None:
    component = "null" if service == "null" else "storage"
    try:
        assert_measured(study_in(tmp_path / name, component=component, service=service, duration_s=0.3))
    except AssertionError:
        counted("odd folders", "failed")
        raise
    counted("odd folders", "measured")
    assert [path.name for path in tmp_path.iterdir()] == [name]
