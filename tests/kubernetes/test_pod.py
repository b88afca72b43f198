"""Pods that measure a deployment: whole runs of exported manifests, steps alone, and the sidecar's channel."""

import gzip
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from processes import until
from service_environment import environment
from study_folder import StudyFolder
from tekton_runs import Cluster

from seamark.planning.study import Study
from seamark.platform.ports import choose_ports
from seamark.platform.process_tree import with_mark
from seamark.services.supervisor.control_files import MARK
from seamark.services.supervisor.health import accepts
from seamark.trials import sidecar
from seamark.trials.run_deployment import only_job
from seamark_kubernetes.pod.steps import STEPS, Pod, main

CANARY = "canary-4f1c"
SECRETS = {
    "hf-secret": {"HF_TOKEN": CANARY},
    "s3-keys": {"AWS_ACCESS_KEY_ID": CANARY, "AWS_SECRET_ACCESS_KEY": CANARY},
}
SCENARIO = "config/scenarios/try.yaml"


@pytest.fixture
def study(tmp_path: Path) -> StudyFolder:
    (tmp_path / "workspace-pvc").mkdir()
    return StudyFolder.new(tmp_path / "workspace-pvc" / "study")


@pytest.fixture
def step(study: StudyFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Run a step of the pod in this process: its code, and what it noted."""
    study.write(workload={"delay_ms": [0, 1]})
    monkeypatch.setattr(sys, "path", [*sys.path])
    shared = tmp_path / "shared"
    shared.mkdir()
    before = Path.cwd()

    def run(name: str, *words: str, levels: tuple[str, ...] = ("delay_ms=0",)) -> tuple[int, dict[str, Any]]:
        given = [f"--study={study.root}", f"--scenario={SCENARIO}", "--site=local", f"--shared={shared}"]
        given += [] if any(word.startswith("--namespace") for word in words) else ["--namespace=n"]
        try:
            code = main([name, *given, *(f"--level={level}" for level in levels), *words])
        except SystemExit as ended:  # of the command line
            code = int(ended.code or 0)
        noted = (shared / "steps.jsonl").read_text().splitlines() if (shared / "steps.jsonl").exists() else ["{}"]
        return code, json.loads(noted[-1])

    yield run
    os.chdir(before)


@pytest.mark.covers("D3", "D4")
@pytest.mark.services
@pytest.mark.slow
def test_a_pipeline_run_fills_the_results_folder_once_and_submit_finds_nothing_to_do(
    study: StudyFolder, tmp_path: Path
) -> None:
    study.write(workload={"delay_ms": [0, 1]}, repetitions=1)
    study.ask("export", "tekton", "-c", SCENARIO, "-o", "out", "--order", "sequential", code=0)
    cluster = Cluster(folder=study.root / "out", root=tmp_path, secrets=SECRETS)
    cluster.run("pipelinerun-sequential-1")
    steps = [(name, 0) for name in STEPS]
    assert cluster.codes == {
        "run-experiment-0-0": steps,
        "run-experiment-1-0": steps,
        "report-0": [("collect", 0)],
    }, cluster.said()
    assert len(study.measurements()) == 4
    assert {*study.measurements().values()} == {1}
    assert (study.root / "reports/try/index.html").exists()
    records = [json.loads(path.read_text()) for path in study.results.glob("deployments/*/deployment.json")]
    assert [(record["ended"]["why"], record["trials"]["ok"]) for record in records] == [("teardown", 2)] * 2
    loads = {path: path.stat().st_mtime_ns for path in study.results.glob("*/load.json")}
    study.measure(code=0)
    assert {path: path.stat().st_mtime_ns for path in study.results.glob("*/load.json")} == loads
    again = Cluster(folder=study.root / "out", root=tmp_path / "again", secrets=SECRETS)
    (tmp_path / "again").mkdir()
    (tmp_path / "again/workspace-pvc").symlink_to(tmp_path / "workspace-pvc")
    again.run("pipelinerun-sequential-1")
    assert {path: path.stat().st_mtime_ns for path in study.results.glob("*/load.json")} == loads
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and CANARY in path.read_text(errors="replace")]
    assert not study.processes()


@pytest.mark.covers("D3")
@pytest.mark.services
@pytest.mark.slow
def test_a_server_that_dies_is_started_again_by_its_sidecar(study: StudyFolder, tmp_path: Path) -> None:
    study.write(workload={"concurrency": [1, 2, 3, 4, 5, 6], "duration_s": 1.0}, repetitions=1)
    study.ask("export", "tekton", "-c", SCENARIO, "-o", "out", code=0)
    cluster = Cluster(folder=study.root / "out", root=tmp_path)
    run = threading.Thread(target=cluster.run, args=("pipelinerun-matrix",))
    run.start()
    until(lambda: list(study.results.glob("*/load.json")), cluster.said, 90)
    [control] = study.results.resolve().glob("deployments/*/.keeper")
    for pid in with_mark(f"{MARK}={control}"):
        if b"seamark.testservers.null" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    run.join(120)
    ended = sorted(
        (json.loads(path.read_text()) for path in study.results.glob("*/load.json")),
        key=lambda load: load["started_at"],
    )
    assert (len(ended), ended[0]["status"], ended[-1]["status"]) == (6, "ok", "ok"), cluster.said()
    [restarted] = [load for load in ended if load["server_restarted"]]
    assert restarted["status"] == "ok"
    assert sum(load["status"] != "ok" for load in ended) <= 1  # that which was under way
    assert not study.processes()


@pytest.mark.covers("D3", "D9")
def test_a_step_is_skipped_with_a_reason_and_a_failure_is_the_code_of_the_last(step: Any, tmp_path: Path) -> None:
    code, noted = step("archive")
    assert (code, noted["outcome"]) == (0, "skipped")
    code, noted = step("capacity", "--skip=capacity: by hand; archive")
    assert (code, noted["outcome"], noted["reason"]) == (0, "skipped", "by hand")
    code, noted = step("place", levels=("delay_ms=7",))
    assert (code, noted["step"], noted["outcome"]) == (2, "place", "failed")
    assert step("load")[1]["outcome"] == "skipped"
    assert step("remove")[0] == 0
    assert (tmp_path / "shared/end").exists()
    assert step("archive")[0] == 2


@pytest.mark.covers("D9")
@pytest.mark.parametrize(
    ("words", "levels", "code"),
    [
        (["--namespace="], ("delay_ms=0",), 2),
        (["--skip=load it"], ("delay_ms=0",), 2),
        (["--skip=place: no"], ("delay_ms=0",), 2),
        ([], ("delay=0",), 2),
        ([], (), 2),
        (["--dry-run=True"], ("delay_ms=0",), 2),
        (["--on-validation-failure=Ignore"], ("delay_ms=0",), 2),
        (["--dry-run=true"], ("delay_ms=1",), 0),
        ([], ("delay_ms=1",), 0),
    ],
)
def test_place_needs_a_namespace_known_steps_and_levels_of_the_plan(
    step: Any, words: list[str], levels: tuple[str, ...], code: int
) -> None:
    assert step("place", *words, levels=levels)[0] == code


@pytest.mark.covers("D4")
def test_a_volume_without_the_study_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = [f"--study={tmp_path / 'none'}", f"--scenario={SCENARIO}", "--site=local", f"--shared={tmp_path}"]
    assert main(["place", *words]) == 2
    assert str(tmp_path / "none") in capfd.readouterr().err


def attended(folder: Path, start: Any) -> threading.Thread:
    thread = threading.Thread(target=sidecar.attend, args=(folder, start))
    thread.start()
    return thread


@pytest.mark.covers("D3")
def test_a_sidecar_starts_what_is_asked_for_and_says_why_not(tmp_path: Path) -> None:
    asked: list[str] = []

    def start(name: str) -> "subprocess.Popen[bytes] | str":
        asked.append(name)
        if name == "refused":
            return "refused: another pod"
        return subprocess.Popen([sys.executable, "-c", f"raise SystemExit({int(name == 'broken')})"])

    thread = attended(tmp_path, start)
    try:
        sidecar.ask(tmp_path, "good")
        for name in ("refused", "broken"):
            with pytest.raises(SystemExit) as ended:
                sidecar.ask(tmp_path, name)
            assert str(ended.value).startswith(name)
        sidecar.ask(tmp_path, "good")
    finally:
        (tmp_path / "end").touch()
        thread.join(30)
    assert asked == ["good", "refused", "broken", "good"]


@pytest.mark.covers("D3")
def test_a_sidecar_that_has_ended_or_never_answers_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sidecar.WAIT_S, "0.2")
    assert "0.2 s" in (sidecar.ask(tmp_path, "d") or "")
    monkeypatch.setenv(sidecar.WAIT_S, "900")
    (tmp_path / "alive").touch()
    os.utime(tmp_path / "alive", (1, 1))
    with pytest.raises(SystemExit):
        sidecar.ask(tmp_path, "d")


@pytest.mark.covers("D3", "D4")
@pytest.mark.services
@pytest.mark.slow
def test_the_results_of_a_deployment_are_uploaded_as_one_archive_without_keys(
    step: Any, study: StudyFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rclone, [port] = environment("s3") / "bin/rclone", choose_ports(("s3",), "127.0.0.1", Random()).values()
    (tmp_path / "buckets/results").mkdir(parents=True)
    words = ["serve", "s3", tmp_path / "buckets", "--config=", f"--addr=127.0.0.1:{port}", "--vfs-cache-mode=off"]
    server = subprocess.Popen([rclone, *words], env=os.environ | {"RCLONE_AUTH_KEY": f'"key,{CANARY}"'})
    try:
        assert step("place")[0] == 0
        planned = Study.at(study.root, scenario=SCENARIO).plan.deployments
        [deployment] = [each for each in planned if each.settings["delay_ms"] == 0]
        [trial, *_] = json.loads((tmp_path / "shared/trials").read_text())
        for folder, name in ((f"deployments/{deployment.id}", "deployment.json"), (trial, "load.json")):
            (study.results / folder).mkdir(parents=True, exist_ok=True)
            (study.results / folder / name).write_text("{}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
        until(lambda: accepts("127.0.0.1", port), within_s=30)
        code, noted = step("archive", "--bucket=results", f"--endpoint=http://127.0.0.1:{port}")
        assert (code, noted["outcome"]) == (0, "done")
    finally:
        server.terminate()
        server.wait()
    [packed] = (tmp_path / "buckets/results").rglob("*.tar.gz")
    with tarfile.open(packed) as tar:
        names = {name for name in tar.getnames() if name.endswith(".json")}
    assert names >= {f"try/{trial}/load.json", f"try/deployments/{deployment.id}/deployment.json"}
    assert CANARY.encode() not in gzip.decompress(packed.read_bytes())


@pytest.mark.covers("D3")
def test_debug_keeps_the_server_until_it_is_told_to_go_on(step: Any, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    removed = threading.Thread(target=step, args=("remove", "--debug=true"))
    removed.start()
    removed.join(0.6)
    assert not (shared / "end").exists()
    (shared / "continue").touch()
    removed.join(30)
    assert (shared / "end").exists()


@pytest.mark.covers("D3")
@pytest.mark.parametrize("how", ["killed", "error"])
def test_a_step_that_is_killed_or_has_an_error_of_ours_fails_the_task(
    step: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def breaks(pod: Pod) -> None:
        raise KeyboardInterrupt if how == "killed" else ValueError

    monkeypatch.setitem(STEPS, "analyse", breaks)
    with pytest.raises((KeyboardInterrupt, ValueError)):
        step("analyse")
    assert step("load")[1]["outcome"] == "skipped"
    assert step("archive")[0] == 1


@pytest.mark.covers("D3", "D9")
@pytest.mark.slow
def test_a_second_pod_of_a_deployment_refuses_and_leaves_the_first_ones_server(
    step: Any, study: StudyFolder, tmp_path: Path
) -> None:
    folder = Study.at(study.root, scenario=SCENARIO).folder("try")
    planned = Study.at(study.root, scenario=SCENARIO).plan.deployments
    [deployment] = [each for each in planned if each.settings["delay_ms"] == 0]
    words = [f"--study={study.root}", f"--scenario={SCENARIO}", "--site=local", f"--shared={tmp_path / 'shared'}"]
    with only_job(folder.deployment(deployment.id)) as alone:
        assert alone
        code = [sys.executable, "-m", "seamark_kubernetes.pod.steps", "serve", *words, "--level=delay_ms=0"]
        beside = subprocess.Popen(code)
        assert step("place")[0] == 0
        assert step("model")[0] == 1
        endpoint = folder.deployment(deployment.id).endpoint
        endpoint.parent.mkdir(parents=True, exist_ok=True)
        endpoint.write_text("{}")
        assert step("remove")[0] == 0
        assert endpoint.exists()
        assert beside.wait(30) == 0
