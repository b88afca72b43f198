"""Plugins: the core without any, and the one of docs/extending.md, made, installed and run."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from study_folder import HANG_S, StudyFolder

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(?:python|yaml|toml)\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRICED = "config/scenarios/priced.yaml"


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a Python that has src/seamark alone, and the libraries of this one."""
    folder = tmp_path_factory.mktemp("core")
    shutil.copytree(ROOT / "src" / "seamark", folder / "seamark")
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), sysconfig.get_path("purelib")))}


def bench(core: dict[str, str], folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run `bench` of the core by the interpreter itself: that of an environment knows where this checkout is."""
    command = [sys._base_executable, "-m", "seamark.cli.main", *words]
    return subprocess.run(command, cwd=folder, env=core, capture_output=True, text=True, timeout=HANG_S, check=False)


@pytest.mark.covers("E2")
def test_the_core_alone_has_no_word_of_plugins_and_refuses_their_services_by_name(
    core: dict[str, str], tmp_path: Path
) -> None:
    said = bench(core, tmp_path, "--help")
    assert said.returncode == 0, said.stderr
    assert not re.search("simulat|evaluat|capacity|gpu|attention", said.stdout, re.IGNORECASE)
    for verb, *words in (["export"], ["doctor"], ["plan"]):
        helped = bench(core, tmp_path, verb, *words, "--help")
        assert not re.search("simulat|evaluat", helped.stdout, re.IGNORECASE), verb
    assert bench(core, tmp_path, "init", ".").returncode == 0
    for scenario, plugin in (
        ("workflow_baseline", "seamark_simulate"),
        ("sparse_attention_local", "seamark_evaluate"),
    ):
        refused = bench(core, tmp_path, "plan", "-c", f"config/scenarios/{scenario}.yaml")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert plugin in refused.stderr
    unknown = bench(core, tmp_path, "simulate")
    assert unknown.returncode == 2


@pytest.mark.covers("E2")
def test_the_core_alone_measures_and_reports(core: dict[str, str], tmp_path: Path) -> None:
    assert bench(core, tmp_path, "init", ".").returncode == 0
    StudyFolder(root=tmp_path).write(repetitions=1)
    done = bench(core, tmp_path, "submit", "-c", "config/scenarios/try.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list((tmp_path / "results/try").glob("*/metrics.json"))) == 2
    assert (tmp_path / "reports/try/index.html").is_file()


@pytest.fixture
def priced(study: StudyFolder, tmp_path_factory: pytest.TempPathFactory) -> StudyFolder:
    """A study beside the installed package of docs/extending.md."""
    source, installed = tmp_path_factory.mktemp("acme"), tmp_path_factory.mktemp("installed")
    for name, text in BLOCK.findall((ROOT / "docs/extending.md").read_text(encoding="utf-8")):
        if name.startswith(("acme_bench/", "pyproject")) or name.endswith("/priced.yaml"):
            path = (study.root if name.startswith("config") else source) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    (source / "acme_bench" / "__init__.py").touch()
    uv = Path(sys.executable).with_name("uv")
    without_network = ("--no-deps", "--no-build-isolation", "--offline", "--python", sys.executable)
    command = [uv, "pip", "install", "--quiet", *without_network, "--target", installed, source]
    subprocess.run(command, check=True, timeout=120)
    return StudyFolder(root=study.root, environment={**os.environ, "PYTHONPATH": str(installed)})


@pytest.mark.covers("E2")
def test_the_plugin_of_the_page_adds_each_of_its_parts(priced: StudyFolder) -> None:
    assert "price " in priced.bench("--help").stdout
    assert priced.bench("price", "-c", PRICED).stdout == "1.5000\n"
    rows = priced.bench("export", "price", "-c", PRICED).stdout.splitlines()
    assert sorted(row.rpartition(",")[2] for row in rows) == ["0.2500", "0.2500", "0.5000", "0.5000"]
    assert "1.5000 for all loads" in priced.bench("plan", "-c", PRICED).stdout
    assert json.loads(priced.bench("plan", "-c", PRICED, "--json").stdout)["price"] == pytest.approx(1.5)

    done = priced.bench("submit", "-c", PRICED, pages=True, code=0)
    assert "The price: 3600 and 7200 an hour." in done.stdout
    page = (priced.root / "reports/priced/index.html").read_text()
    assert "The loads of this scenario cost 1.5000." in page
    assert len(list((priced.root / "results/priced").glob("*day*"))) == 2

    scenario = priced.root / PRICED
    scenario.write_text(scenario.read_text().replace("  tariff: [day, {per_hour: 7200}]\n", ""))
    refused = priced.bench("plan", "-c", PRICED)
    assert (refused.returncode, "tariff" in refused.stderr) == (2, True)


@pytest.mark.covers("E2")
def test_a_plugin_that_cannot_be_imported_is_named_in_one_line(priced: StudyFolder) -> None:
    assert priced.environment is not None
    plugin = Path(priced.environment["PYTHONPATH"]) / "acme_bench" / "plugin.py"
    plugin.write_text("import nothing_of_that_name\n")
    refused = priced.bench("--help")
    assert (refused.returncode, len(refused.stderr.splitlines())) == (3, 1)
    assert "acme_bench.plugin:PLUGIN" in refused.stderr
