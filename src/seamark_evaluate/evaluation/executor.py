"""BenchmarkExecutor: a matrix of models, attention configurations and benchmarks from Python, run by `bench submit`.

The matrix is a scenario in a study of its own, `<base_result_dir>/.seamark`. Trials that are there are not measured
again; after the run the finished ones are exported to the result tree in `base_result_dir`.
"""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from seamark.errors import SiteError, UserError
from seamark.model.trial import Trial
from seamark.planning.study import Study
from seamark.platform.process_tree import set_parent_death_signal
from seamark.services.supervisor.control_files import acquire_lock, run_lock
from seamark.services.supervisor.device_locks import held_here
from seamark.storage.documents import write_text
from seamark.trials.judge import needs_judging
from seamark.trials.progress import Progress, Seen, State, progress_of
from seamark.trials.trial_files import put_aside
from seamark_evaluate.evaluation.evaluated_trial import EvaluatedTrial
from seamark_evaluate.evaluation.matrix import (
    AdapterConfig,
    BenchmarkConfig,
    BenchmarkFailure,
    BenchmarkResult,
    BenchmarkStub,
    ExecutionProgress,
    ExecutionResults,
    Sparse,
    stubs_of,
)
from seamark_evaluate.evaluation.matrix_study import SCENARIO, DeviceKind, study_of, tasks_in, trials_by_stub
from seamark_evaluate.evaluation.result_tree import is_current, is_of_another, is_whole, write_summary, write_whole

POLL_S = 0.5
ENDS_S = 20.0
"""Wait for the run of an execution that was killed a moment ago: it ends its servers first."""

Watcher = Callable[[ExecutionProgress], object]


class BenchmarkExecutor:
    """Runs matrices on some devices, `max_concurrent_runs` stubs at a time, each on one device alone.

    `gpu_ids` are GPUs of this machine, or CPUs with `device_kind="cpu"`. Lower `max_concurrent_runs` where GPUs run
    out of memory. Ids that do not exist, repeat or are none raise UserError before any work.
    """

    def __init__(
        self,
        gpu_ids: Sequence[int],
        max_concurrent_runs: int = 1,
        base_result_dir: str = "./benchmark_results",
        *,
        device_kind: DeviceKind = "gpu",
        on_progress: Watcher | None = None,
    ) -> None:
        if not gpu_ids:
            raise UserError("gpu_ids: an empty list. Name at least one device.")
        if wrong := [gpu for gpu in gpu_ids if type(gpu) is not int or gpu < 0]:
            raise UserError(f"gpu_ids: {wrong[0]!r} is no number of a device: 0, 1, 2, ...")
        if len(set(gpu_ids)) < len(gpu_ids):
            raise UserError(f"gpu_ids: {list(gpu_ids)} names a device twice. Remove one.")
        if type(max_concurrent_runs) is not int or max_concurrent_runs < 1:
            raise UserError(f"max_concurrent_runs: {max_concurrent_runs!r} is no number of runs. Give 1 or more.")
        self.gpu_ids = tuple(gpu_ids)
        self.max_concurrent_runs = max_concurrent_runs
        self.base_result_dir = base_result_dir
        self._kind = device_kind
        self._on_progress = on_progress

    def run_benchmark_matrix(
        self,
        model_names: Sequence[str],
        sparse_attention_configs: Sequence[tuple[str, Sparse]],
        benchmark_configs: Sequence[BenchmarkConfig],
        adapter_config: AdapterConfig,
        generation_kwargs: Mapping[str, Any] | None = None,
        request_kwargs: Mapping[str, Any] | None = None,
    ) -> ExecutionResults:
        """Evaluate every combination that has no result yet, failed ones again; return the results of all.

        An attention configuration is a name with the maskers of a method (`{"maskers": [...]}`), the name of a
        preset, or None for dense attention. A stub that fails is in `failed_executions`, and all others are
        evaluated. No argument is changed. Raises UserError with every mistake before any work.
        """
        began_s = time.monotonic()
        stubs = self.plan(model_names, sparse_attention_configs, benchmark_configs, adapter_config, generation_kwargs)
        base, lanes = Path(self.base_result_dir), self._lanes()
        _require_no_run(base)
        with _removed_if_refused(base):
            study = study_of(stubs, request_kwargs or {}, base, lanes, self._kind, self.max_concurrent_runs)
            trials = trials_by_stub(study, stubs)
            done = self._done_before(study, stubs, trials)
            if len(done) < len(stubs):
                self._submit(study, {trials[stub.result_dir].id: stub for stub in stubs}, len(done))
        found = [(stub, _evaluated(study, trials[stub.result_dir])) for stub in stubs]
        self._export(found)
        took_s = time.monotonic() - began_s
        named = {stub.title: trial for stub, trial in found}
        return _results(found, write_summary(named, base, skipped=len(done), took_s=took_s), took_s)

    def _done_before(
        self, study: Study, stubs: Sequence[BenchmarkStub], trials: Mapping[str, Trial]
    ) -> list[BenchmarkStub]:
        """Return the stubs that need no run, with a line for each. Put aside what is to be measured again: failed
        trials, and those whose folder was written and is no longer whole, as it was removed or damaged."""
        done, written = [], self._written_before()
        for stub in stubs:
            trial = _evaluated(study, trials[stub.result_dir])
            removed = stub.result_dir in written and not is_whole(Path(stub.result_dir))
            if removed or trial.failed:
                put_aside(trial.folder)
            elif trial.whole and needs_judging(study, trial.trial, trial.folder):
                print(f"Scoring {stub.title} again - what it is scored by has changed", flush=True)
            elif trial.whole:
                done.append(stub)
                more = "" if is_current(Path(stub.result_dir), trial) else ", and its files are written"
                print(f"Skipping {stub.title} - results exist{more}", flush=True)
        return done

    def _export(self, found: Sequence[tuple[BenchmarkStub, EvaluatedTrial]]) -> None:
        """Write the folders of whole trials that are new or have changed.

        A folder that another configuration left in the place of a failed stub is removed: its trial stays in the
        study, and is written when it is asked for.
        """
        trials = {Path(stub.result_dir): trial for stub, trial in found}
        stale = [path for path, trial in trials.items() if not trial.whole and is_of_another(path, trial)]
        left = self._written_before() - set(map(str, stale))
        self._note_written(left)
        for folder in stale:
            shutil.rmtree(folder)
        now = write_whole(
            {path: trial for path, trial in trials.items() if str(path) not in left or not is_current(path, trial)}
        )
        self._note_written(left | set(map(str, now)))

    def plan(
        self,
        model_names: Sequence[str],
        sparse_attention_configs: Sequence[tuple[str, Sparse]],
        benchmark_configs: Sequence[BenchmarkConfig],
        adapter_config: AdapterConfig,
        generation_kwargs: Mapping[str, Any] | None = None,
    ) -> tuple[BenchmarkStub, ...]:
        """Return the stubs of a matrix without running anything. Raises UserError with its mistakes."""
        if not benchmark_configs:
            raise UserError("benchmark_configs: an empty list. Name at least one.")
        tasks = [task for config in benchmark_configs for task in tasks_in(config)]
        return stubs_of(
            model_names,
            sparse_attention_configs,
            tasks,
            adapter_config,
            generation_kwargs or {},
            self.base_result_dir,
        )

    @property
    def _written(self) -> Path:
        return Path(self.base_result_dir, ".seamark", "written.json")

    def _written_before(self) -> frozenset[str]:
        """Return the folders of stubs that any execution has written."""
        try:
            return frozenset(json.loads(self._written.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return frozenset()

    def _note_written(self, folders: frozenset[str]) -> None:
        write_text(self._written, f"{json.dumps(sorted(folders), indent=1)}\n")

    def _lanes(self) -> Mapping[str, Any]:
        """Return the lanes of a run. A single stub at a time has a second lane, which waits for the one device."""
        ids = self.gpu_ids[: self.max_concurrent_runs]
        return {
            f"{self._kind}s": ",".join(map(str, ids)),
            "per_device": -(-self.max_concurrent_runs // len(ids)),
            "parallel": max(2, self.max_concurrent_runs),
        }

    def _submit(self, study: Study, stubs: Mapping[str, BenchmarkStub], skipped: int) -> None:
        """Run `bench submit` to its end. Report progress, and write the folder of each stub when it is whole. Raises
        UserError or SiteError where the run was refused."""
        titles, folder = {name: stub.title for name, stub in stubs.items()}, study.folder(SCENARIO)
        left = {trial.id: trial for trial in study.plan.trials if trial.id in stubs}
        command = [sys.executable, "-m", "seamark.cli.main", "submit", "-c", str(study.scenario_path), "--json"]
        for option, value in self._lanes().items():
            command += [f"--{option.replace('_', '-')}", str(value)]
        seen: Seen = {}
        with (
            TemporaryFile("w+", encoding="utf-8", errors="replace") as said,  # a pipe that is not read fills up
            subprocess.Popen(
                command,
                cwd=study.root,
                stdout=subprocess.DEVNULL,
                stderr=said,
                preexec_fn=_end_with_parent,
            ) as run,
        ):
            try:
                while run.poll() is None:
                    with suppress(subprocess.TimeoutExpired):
                        run.wait(POLL_S)
                    now = progress_of(study, seen)
                    for name in [state.trial for state in now.states if state.state == "ok" and state.trial in left]:
                        if (trial := EvaluatedTrial.of(left[name], folder)).whole:
                            self._export([(stubs[name], trial)])
                            del left[name]
                    if self._on_progress is not None:
                        self._on_progress(_progress(study, now, titles, skipped))
            except BaseException:
                run.terminate()
                raise
            said.seek(0)
            text = said.read()
        if run.returncode == 2:
            raise UserError(text.strip() or "bench submit refused the matrix.")
        if run.returncode not in (0, 1):
            raise SiteError(text.strip() or f"bench submit ended with exit code {run.returncode}.")


def _evaluated(study: Study, trial: Trial) -> EvaluatedTrial:
    return EvaluatedTrial.of(trial, study.folder(SCENARIO))


def _end_with_parent() -> None:
    """Have a run end in order when this process is killed, so that the next execution can go on where it was."""
    set_parent_death_signal(signal.SIGTERM)


@contextmanager
def _removed_if_refused(base: Path) -> Iterator[None]:
    """Leave no study behind a matrix that was refused before any work, unless one was there."""
    base_was, study_was = base.exists(), (base / ".seamark").exists()
    try:
        yield
    except UserError as error:
        if not study_was and not isinstance(error, SiteError):
            shutil.rmtree(base / ".seamark", ignore_errors=True)
            if not base_was:
                with suppress(OSError):  # it has the results of another
                    base.rmdir()
        raise


def _require_no_run(base: Path) -> None:
    """Raise UserError while another execution is at work in this folder, before any file of it changes."""
    lock = run_lock(base / ".seamark")
    if not lock.exists():
        return
    held = acquire_lock(lock, wait_s=ENDS_S)
    if held is None:
        raise UserError(f"{base}: another execution is at work here. Wait for its end, or name another folder.")
    held.close()


def _progress(study: Study, now: Progress, titles: Mapping[str, str], skipped: int) -> ExecutionProgress:
    """Return the progress of the planned trials, whose stubs have `titles`, and what runs on each device."""
    states = [state for state in now.states if state.trial in titles]
    done = sum(state.state == "ok" for state in states)
    serving = [
        (int(number), Path(holder.folder).name)
        for slot, holder in held_here()
        if holder.study == str(study.root) and holder.folder and (number := slot.split()[1]).isdigit()
    ]
    return ExecutionProgress(
        total_stubs=len(states),
        skipped_stubs=skipped,
        completed_stubs=done - skipped,
        failed_stubs=sum(state.state in ("failed", "timeout", "damaged") for state in states),
        current_executions=running_on(serving, states, titles),
    )


def running_on(
    serving: Sequence[tuple[int, str]], states: Sequence[State], titles: Mapping[str, str]
) -> Mapping[int, str]:
    """Return what runs on each device: the titles of running stubs, or the deployment that is being started or ended.
    `serving` are pairs of a device and a deployment, several of one device where lanes share it."""
    found: dict[int, dict[str, None]] = {}
    for device, deployment in serving:
        running = [
            titles[state.trial] for state in states if (state.deployment, state.state) == (deployment, "running")
        ]
        found.setdefault(device, {}).update(dict.fromkeys(running or [f"server {deployment}"]))
    return {device: ", ".join(names) for device, names in found.items()}


def _results(
    found: Sequence[tuple[BenchmarkStub, EvaluatedTrial]], document: Mapping[str, Any], took_s: float
) -> ExecutionResults:
    results = [
        BenchmarkResult(stub=stub, metrics=trial.document(), execution_time=trial.took_s)
        for stub, trial in found
        if trial.whole
    ]
    summary = {name: value for name, value in document.items() if name != "failures"}
    return ExecutionResults(
        execution_summary=summary,
        individual_results=results,
        failed_executions=[_failure(stub, trial) for stub, trial in found if not trial.whole],
        execution_time=took_s,
    )


def _failure(stub: BenchmarkStub, trial: EvaluatedTrial) -> BenchmarkFailure:
    category, reason = trial.failure
    return BenchmarkFailure(stub=stub, error_message=reason, error_type=category, execution_time=trial.took_s)
