"""Steps of a pod that measures one deployment, and the sidecar that serves it: one container each.

Exported manifests run `python -m seamark_kubernetes.pod.steps STEP --study FOLDER ... --level=NAME=VALUE ...`. The
containers have the study and a folder in common, and no processes. A step that fails, or is killed, is a reason to
skip the others; `remove` and `archive` run in any case, and the last one returns the code of the one that failed.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from signal import SIGTERM

from seamark.errors import Mistake, UserError, did_you_mean
from seamark.model.dotted import search_in
from seamark.model.harness import harnesses_of
from seamark.model.results.deployment_record import Endpoint
from seamark.model.trial import Deployment
from seamark.planning.plan_checks import checked_by_plugins
from seamark.planning.study import Study
from seamark.platform.process_tree import exit_on_signals
from seamark.services.runtimes.environments import prepare_environment
from seamark.services.supervisor import deployment as servers
from seamark.services.supervisor.events import timestamp
from seamark.storage.documents import read, write_text
from seamark.storage.paths import DeploymentFolder, ScenarioFolder
from seamark.trials import sidecar
from seamark.trials.run_deployment import only_job, pending_trials
from seamark_kubernetes.tekton.deployments import combinations

KEEP_S = 3600.0
"""How long a pod with `debug` keeps its server after the last step."""
UPLOAD = (
    "import boto3, sys; endpoint, *what = sys.argv[1:];"
    " boto3.client('s3', endpoint_url=endpoint or None).upload_file(*what)"
)


class SkippedError(Exception):
    """A step has nothing to do; the text is the reason."""


@dataclass(frozen=True, kw_only=True)
class Pod:
    """What the containers of a pod are told: a deployment by its levels, the folder in common, and switches."""

    scenario_file: str
    site: str
    shared: Path
    levels: Mapping[str, str]
    namespace: str
    skip: Mapping[str, str]
    """Step -> why it is skipped."""
    ignore_capacity: bool
    dry_run: bool
    debug: bool
    bucket: str
    endpoint: str

    @cached_property
    def study(self) -> Study:
        """The study in the working folder."""
        return Study.at(Path.cwd(), scenario=self.scenario_file, site=self.site)

    @property
    def scenario(self) -> str:
        """The scenario's name."""
        return self.study.scenario.name

    @cached_property
    def deployment(self) -> Deployment:
        """The deployment of these levels. Raises UserError with the nearest one."""
        rows = combinations(self.study.plan, self.study.services)
        found = [name for name, row in rows.items() if row == self.levels]
        if not found:
            given = ", ".join(f"{name}={level}" for name, level in self.levels.items()) or "none"
            known = [", ".join(f"{name}={level}" for name, level in row.items()) for row in rows.values()]
            text = f"no deployment of the plan has these levels.{did_you_mean(given, known)} Export it again."
            raise UserError(Mistake(code="unknown_name", file=self.scenario_file, path=given, text=text))
        return self.study.deployment(self.scenario, found[0])

    @property
    def results(self) -> ScenarioFolder:
        """The results of the scenario."""
        return self.study.folder(self.scenario)

    @property
    def folder(self) -> DeploymentFolder:
        """The results of the deployment."""
        return self.results.deployment(self.deployment.id)

    @property
    def failed(self) -> Path:
        """Exists while a step runs and once one has failed, with its name and exit code."""
        return self.shared / "failed"

    @property
    def idle(self) -> Path:
        """Exists where nothing is left to measure, with the reason."""
        return self.shared / "idle"

    @property
    def served(self) -> Path:
        """Exists once the sidecar has started a server."""
        return self.shared / "served"

    @cached_property
    def trials(self) -> tuple[str, ...]:
        """The trials to measure, as `place` found them."""
        return tuple(json.loads((self.shared / "trials").read_text(encoding="utf-8")))

    def script(self, name: str, subject: str, **environment: str) -> "subprocess.Popen[bytes]":
        """Start a script of the study for a deployment or a trial; its output is that of the step."""
        words = [sys.executable, str(self.study.file(f"scripts/{name}.py"))]
        words += [self.scenario_file, self.site, self.scenario, subject]
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, env=os.environ | environment)

    def measure(self, name: str, subjects: Sequence[str]) -> None:
        """Run a script for each subject, where a server is started by the sidecar. Raises SystemExit at the end if
        one broke off."""
        beside = {sidecar.FOLDER: str(self.shared)}
        broken = [subject for subject in subjects if self.script(name, subject, **beside).wait()]
        if broken:
            raise SystemExit(f"{name} broke off for {', '.join(broken)}.")


def place(pod: Pod) -> None:
    """Find the deployment of the levels and its trials to measure; nothing of another run may serve it."""
    if not pod.namespace:
        text = "is empty. Set the parameter of the PipelineRun to the namespace of the experiment."
        raise UserError(Mistake(code="no_value", path="namespace", text=text))
    pod.study.require_variables()
    pod.study.require_environments()
    print(f"deployment {pod.deployment.id} of {pod.scenario}, namespace {pod.namespace}", flush=True)
    if pod.dry_run:
        return
    left = pending_trials(pod.study, pod.scenario, pod.deployment.id)
    pod.study.refresh_plan(pod.scenario)
    write_text(pod.shared / "trials", json.dumps(left))
    if not left:
        write_text(pod.idle, "all trials are measured")


def capacity(pod: Pod) -> None:
    """Check that the server of this deployment fits into its GPUs."""
    try:
        for checked in checked_by_plugins(pod.study.of_trial(pod.scenario, pod.trials[0])):
            print("\n".join((*checked.lines, *checked.notes)))
    except UserError as mistake:
        if not pod.ignore_capacity:
            raise
        print(f"{mistake}\nIt is measured all the same: behaviorOnValidationFailure is 'ignore'.")


def download(pod: Pod) -> None:
    """Install the environments of the servers and loads, and download a model that a setting names."""
    locks = set()
    for served in pod.deployment.served:
        lock = pod.study.services[served.service].load_lock(elsewhere=served.external is not None)
        if lock is None:
            continue
        locks.add(lock)
        root = prepare_environment(lock, pod.study.locks, pod.study.environments)
        model, hub = str(served.settings.get("model", "")), root / "bin" / "hf"
        if model.count("/") == 1 and not Path(model).exists() and hub.exists():
            subprocess.run([hub, "download", model], check=True)
    for lock in harnesses_of(pod.study.trials_of(pod.scenario, pod.deployment.id)):
        locks.add(lock)
        prepare_environment(lock, pod.study.locks, pod.study.environments)
    if not locks:
        raise SkippedError("every service runs in the base environment")


def model(pod: Pod) -> None:
    """Let the sidecar start the server; that it fails is a result."""
    pod.measure("serve", [pod.deployment.id])
    if not (answer := read(pod.folder.endpoint, Endpoint)).ok:
        print(f"{answer.category}: {answer.reason}", flush=True)


def ready(pod: Pod) -> None:
    """Send the server its first requests."""
    pod.measure("warmup", [pod.deployment.id])


def load(pod: Pod) -> None:
    """Measure the trials one after another."""
    pod.measure("load", pod.trials)


def convert(pod: Pod) -> None:
    """Score the replies that were kept."""
    from seamark.trials.judge import judge_trial, needs_judging  # most steps need none of it

    asked = [(trial, pod.results.trial(trial.id)) for trial in pod.study.trials_of(pod.scenario, pod.deployment.id)]
    judged = [pair for pair in asked if pair[1].load.exists() and needs_judging(pod.study, *pair)]
    for trial, folder in judged:
        judge_trial(pod.study, trial, folder)
    if not judged:
        raise SkippedError("no reply is to be scored")


def analyse(pod: Pod) -> None:
    """Derive telemetry and metrics of each measured trial."""
    from seamark.trials.derive_trial import derive_trial, is_derived

    for trial in pod.study.trials_of(pod.scenario, pod.deployment.id):
        folder = pod.results.trial(trial.id)
        if folder.load.exists() and not is_derived(folder, trial):
            derive_trial(pod.results, trial, pod.deployment)


def remove(pod: Pod) -> None:
    """End the server and write its record; with `debug` first wait for a file `continue` in the folder in common."""
    until_s = time.monotonic() + KEEP_S
    if pod.debug:
        print(f"debug: the server stays for {KEEP_S / 60:g} min, or until {pod.shared}/continue is there", flush=True)
    while pod.debug and time.monotonic() < until_s and not (pod.shared / "continue").exists():
        time.sleep(0.2)
    if pod.served.exists() or (pod.idle.exists() and not pod.folder.record.exists()):
        pod.script("teardown", pod.deployment.id).wait()
        pod.folder.endpoint.unlink(missing_ok=True)
        pod.folder.warmup.unlink(missing_ok=True)
    (pod.shared / "end").touch()


def archive(pod: Pod) -> None:
    """Upload the results of the deployment to S3 as one archive, in the place of an earlier one."""
    if not pod.bucket:
        raise SkippedError("no s3-bucket is named")
    if not (pod.shared / "trials").exists():
        raise SkippedError("there is no deployment of these levels")
    boto3 = prepare_environment("s3", pod.study.locks, pod.study.environments) / "bin" / "python"
    trials = (pod.results.trial(trial.id).root for trial in pod.study.trials_of(pod.scenario, pod.deployment.id))
    folders = [folder for folder in (pod.folder.root, *trials) if folder.is_dir()]
    key = f"{pod.scenario}/{pod.deployment.id}.tar.gz"
    with tempfile.TemporaryDirectory() as scratch:
        packed = Path(scratch) / "results.tar.gz"
        with tarfile.open(packed, "w:gz") as tar:
            for folder in folders:
                tar.add(folder, folder.relative_to(pod.results.root.parent))
        subprocess.run([boto3, "-c", UPLOAD, pod.endpoint, packed, pod.bucket, key], check=True)
    print(f"{key} is in {pod.bucket}", flush=True)


STEPS: dict[str, Callable[[Pod], None]] = {
    step.__name__: step for step in (place, capacity, download, model, ready, load, convert, analyse, remove, archive)
}
"""Steps in their order. An archive has the record that is written at the end of the server."""
ALWAYS = ("remove", "archive")
"""Steps that run after a failure too, and with nothing to measure."""


def serve(pod: Pod) -> None:
    """Be the sidecar: start servers as the steps ask, and end what runs at the end."""
    if pod.dry_run:
        return

    with only_job(pod.folder) as alone, exit_on_signals(SIGTERM):

        def start(deployment: str) -> "subprocess.Popen[bytes] | str":
            if not alone:
                return f"{deployment}: another pod is at work on it."
            pod.served.touch()
            return pod.script("serve", deployment)

        try:
            sidecar.attend(pod.shared, start)
        finally:
            if alone:
                servers.stop(pod.folder, "sigterm")


def run(name: str, pod: Pod) -> int:
    """Run a step unless it is skipped, note its outcome and seconds, and return its exit code: of the last step that
    of the first that failed."""
    began_s, outcome, reason, code = time.monotonic(), "done", "", 0
    before = pod.failed.read_text(encoding="utf-8").split() if pod.failed.exists() else None
    if before is None:
        write_text(pod.failed, f"{name} 1")  # what ends by a signal, or by an error of ours, leaves it there
    try:
        if reason := _why_skipped(name, pod, before):
            raise SkippedError(reason)
        STEPS[name](pod)
    except SkippedError as skipped:
        outcome, reason = "skipped", str(skipped)
    except UserError as mistake:
        outcome, reason, code = "failed", str(mistake), mistake.exit_code
    except SystemExit as ended:
        outcome, reason = "failed", "" if isinstance(ended.code, int) else str(ended.code)
        code = ended.code if isinstance(ended.code, int) else 1
    except (OSError, subprocess.CalledProcessError) as cause:
        outcome, reason, code = "failed", str(cause), 1
    noted = {"step": name, "at": timestamp(), "s": round(time.monotonic() - began_s, 3), "outcome": outcome}
    print(json.dumps(noted | ({"reason": reason} if reason else {})), flush=True)
    with (pod.shared / "steps.jsonl").open("a", encoding="utf-8") as file:
        print(json.dumps(noted | {"reason": reason}), file=file)
    if before is None and code:
        write_text(pod.failed, f"{name} {code}")
    elif before is None:
        pod.failed.unlink()
    if name == [*STEPS][-1] and before is not None:
        print(f"step {before[0]} failed", file=sys.stderr)
        return code or int(before[1])
    return code


def _why_skipped(name: str, pod: Pod, failed: Sequence[str] | None) -> str:
    if name in pod.skip:
        return pod.skip[name] or "the parameter `skip` names it"
    if pod.dry_run and name != "place":
        return "dryRun"
    if name in ALWAYS:
        return ""
    if failed is not None:
        return f"step {failed[0]} failed"
    return pod.idle.read_text(encoding="utf-8") if pod.idle.exists() else ""


def skipped_steps(text: str) -> dict[str, str]:
    """Return the steps that `NAME: reason; NAME` names. Raises UserError for an unknown one, and for those that
    nothing goes on without."""
    found = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, _, reason = (word.strip() for word in part.partition(":"))
        known = [step for step in STEPS if step not in ("place", "remove")]
        if name not in known:
            said = f"no such step.{did_you_mean(name, known)} Steps: {', '.join(known)}."
            raise UserError(Mistake(code="unknown_name", path=f"skip: {name}", text=said))
        found[name] = reason
    return found


def main(argv: Sequence[str]) -> int:
    """Run a step, or the sidecar `serve`."""
    parser = argparse.ArgumentParser(prog="seamark_kubernetes.pod.steps")
    parser.add_argument("step", choices=(*STEPS, "serve"))
    for option in ("study", "scenario", "site", "shared"):
        parser.add_argument(f"--{option}", required=True)
    for option in ("namespace", "skip", "bucket", "endpoint"):
        parser.add_argument(f"--{option}", default="")
    for option in ("dry-run", "debug"):
        parser.add_argument(f"--{option}", default="false", choices=("true", "false"))
    parser.add_argument("--on-validation-failure", default="terminate", choices=("terminate", "ignore"))
    parser.add_argument("--level", action="append", default=[])
    given = parser.parse_args(argv)
    try:
        os.chdir(given.study)
        search_in(Path.cwd())
        pod = Pod(
            scenario_file=given.scenario,
            site=given.site,
            shared=Path(given.shared),
            levels=dict(level.split("=", 1) for level in given.level),
            namespace=given.namespace,
            skip=skipped_steps(given.skip),
            ignore_capacity=given.on_validation_failure == "ignore",
            dry_run=given.dry_run == "true",
            debug=given.debug == "true",
            bucket=given.bucket,
            endpoint=given.endpoint,
        )
        if given.step == "serve":
            serve(pod)
            return 0
    except OSError as cause:
        print(f"{given.study}: no study there ({cause.strerror}). Copy it to the volume first.", file=sys.stderr)
        return 2
    except UserError as mistake:
        print(mistake, file=sys.stderr)
        return mistake.exit_code
    return run(given.step, pod)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
