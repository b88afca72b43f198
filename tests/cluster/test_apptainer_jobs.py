"""Loads as Snakemake's own containers: the jobs of rules that send load run in an image, their servers outside."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from boxes import BENCH, CLUSTER, Boxed, python_base
from processes import eventually
from server_bench import kill

from seamark.errors import SiteError, UserError
from seamark.workflow.containerised_jobs import install_apptainer_shim
from seamark.workflow.dag import Dag

pytestmark = [pytest.mark.e2e, pytest.mark.services, pytest.mark.cluster]
SNAKEMAKE = [sys.executable, "-m", "snakemake", "--software-deployment-method", "apptainer"]


@pytest.fixture
def half(boxes: Boxed) -> Boxed:
    """A study at whose site only the loads run in images."""
    images = {"jobs": True, "base": str(python_base())}
    document = {"name": "half", "summary": "loads in images", "images": images, "lease_s": 12.0}
    document["paths"] = {"containers": str(CLUSTER / "images")}
    (boxes.root / "config" / "sites" / "half.yaml").write_text(yaml.safe_dump(document))
    return boxes


def prepared(study: Boxed, site: str, *services: str, **more: Any) -> dict[str, str]:
    """Write a scenario of these services and have its images; return their digests by name."""
    made = study.bench("prepare", "-c", study.scenario(*services, **more), "--site", site, "--json", code=0)
    return {step["name"]: step["digest"] for step in json.loads(made.stdout)["steps"] if step["kind"] == "image"}


def snakemake(study: Boxed, site: str) -> "subprocess.CompletedProcess[str]":
    """Call Snakemake itself, as its user would."""
    profile = Path(__file__).parents[2] / "profiles" / "default"
    words = ["--snakefile", str(study.study(site).file("Snakefile")), "--workflow-profile", str(profile)]
    words += ["--config", "scenario=boxed.yaml", f"site={site}"]
    return subprocess.run([*SNAKEMAKE, *words], cwd=study.root, capture_output=True, text=True, check=False)


def inside(study: Boxed) -> list[psutil.Process]:
    """Return the processes in images that work in the study."""
    found = []
    for process in psutil.process_iter():
        try:
            if "APPTAINER_CONTAINER" in process.environ() and process.cwd() == str(study.root):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.sweep
@pytest.mark.covers("E-FR05", "E-FR08", "E-FR21", "E-MR02")
def test_snakemake_runs_loads_in_their_image_and_servers_outside_and_meta_says_so(boxes: Boxed) -> None:
    boxes.site(jobs=True)
    digests = prepared(boxes, "boxes", "postgres")
    for words in (
        ["init", "-q"],
        ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "s", "--allow-empty"],
    ):
        subprocess.run(["git", *words], cwd=boxes.root, check=True)
    done = snakemake(boxes, "boxes")
    assert done.returncode == 0, done.stdout + done.stderr
    [meta] = [json.loads(path.read_text()) for path in (boxes.root / "results" / "boxed").glob("*/meta.json")]
    [load] = [json.loads(path.read_text()) for path in (boxes.root / "results" / "boxed").glob("*/load.json")]
    assert (load["status"], load["completed"] > 100) == ("ok", True)
    client, server = meta["client_container"], meta["container"]
    assert (client["name"], client["digest"]) == ("seamark-postgres-built", digests["seamark-postgres-built"])
    assert (server["name"], server["digest"]) == ("postgres-built", digests["postgres-built"])
    assert meta["software"]["inside_container"] == client["path"]
    assert len(meta["git_commit"]) == 40
    assert not inside(boxes)


@pytest.mark.sweep
@pytest.mark.covers("E-SVR06", "E-NFR04")
def test_a_load_in_an_image_of_snakemakes_ends_when_snakemake_is_killed(half: Boxed) -> None:
    prepared(half, "half", "null", defaults={"duration_s": 120.0, "warmup_s": 0.0})
    run = subprocess.Popen([BENCH, "submit", "-c", "boxed.yaml", "--site", "half"], cwd=half.root)
    try:
        loads = half.root / "results" / "boxed"
        assert eventually(lambda: bool(list(loads.glob("*/.parts/*/client.csv"))), within_s=40.0)
        assert len(inside(half)) >= 2, "the load and its worker"
        [endpoint] = [json.loads(path.read_text()) for path in loads.glob("deployments/*/endpoint.json")]
        for process in psutil.Process(run.pid).children():
            if "snakemake" in process.cmdline():
                kill(process.pid)
        assert eventually(lambda: not inside(half), within_s=20.0)
        assert eventually(lambda: not psutil.pid_exists(endpoint["server_pid"]), within_s=20.0)
    finally:
        half.bench("stop", "-c", "boxed.yaml")
        run.kill()
        run.wait()


@pytest.mark.covers("E-MR02")
def test_what_is_missing_for_containers_is_said_before_anything_runs(boxes: Boxed) -> None:
    boxes.scenario("null")
    with pytest.raises(UserError, match=r"Write 'images: {jobs: true}' into the site"):
        Dag(study=boxes.study(), contained=True)
    boxes.site("empty", containers=boxes.root / "none", jobs=True)
    with pytest.raises(SiteError, match=r"bench prepare -c .*boxed.yaml --site empty"):
        Dag(study=boxes.study("empty"), contained=True)


@pytest.mark.covers("E-MR03", "E-MLX02")
def test_snakemakes_containers_start_after_the_sites_modules_and_see_the_study(
    boxes: Boxed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.environ["PATH"])
    engine, modules = tmp_path / "module" / "apptainer", tmp_path / "init"
    engine.parent.mkdir()
    engine.write_text('#!/bin/sh\necho "$APPTAINER_BINDPATH"; echo "$@"\n')
    engine.chmod(0o755)
    modules.write_text(f"module() {{ [ -e {engine} ] && PATH={engine.parent}:$PATH; }}\n")
    boxes.scenario("null")
    site = boxes.root / "config" / "sites" / "boxes.yaml"
    told = {"modules": ["Apptainer/1"], "module_init": str(modules)}
    site.write_text(yaml.safe_dump(yaml.safe_load(site.read_text()) | told))
    study = boxes.study()
    install_apptainer_shim(study)
    assert shutil.which("apptainer") == str(boxes.root / ".seamark" / "bin" / "apptainer")

    def said(*words: str) -> list[str]:
        done = subprocess.run(["apptainer", *words], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    binds, words = said("exec", "--home", "x", "image.sif", "bash", "-c", "'a b'")
    assert {str(boxes.root), str(study.results)} <= set(binds.split(","))
    assert words == "exec --home x image.sif bash -c 'a b'"
    engine.unlink()
    assert said("--version") == ["apptainer version 1.0.0"], "a login node without modules"
