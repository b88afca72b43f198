"""BenchmarkExecutor: a matrix of models, attention configurations and benchmarks from Python, run by `bench submit`.

The matrix is a scenario in a study of its own, `<base_result_dir>/.seamark`. Trials that are there are not measured
again; after the run the finished ones are exported to the result tree in `base_result_dir`.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import yaml

from seamark.config.benchmark_files import tasks_of
from seamark.config.read import Recipes
from seamark.errors import SiteError, UserError, did_you_mean
from seamark.evaluation.adapters import adapter_settings, service_of
from seamark.evaluation.evaluated_trial import EvaluatedTrial, evaluated, setting_name
from seamark.evaluation.matrix import (
    AdapterConfig,
    BenchmarkConfig,
    BenchmarkFailure,
    BenchmarkResult,
    BenchmarkStub,
    ExecutionProgress,
    ExecutionResults,
    settings_of_generation,
    stubs_of,
)
from seamark.evaluation.result_tree import write_tree
from seamark.model.service import Service
from seamark.model.trial import Trial
from seamark.planning.study import Study, config_folder
from seamark.services.supervisor.device_locks import held_here
from seamark.storage.paths import write_text
from seamark.trials.progress import Progress, Seen, progress_of

SCENARIO = "matrix"
FOLDERS = ("benchmarks", "methods", "services", "sites")
"""Folders of `config` that the study shares with the working folder, where that has them."""
REQUEST_KWARGS = {"max_context_length": "max_context_tokens", "max_requests": "max_requests"}
POLL_S = 0.5
UNFINISHED = "not_finished"
"""Category of a stub that the run left without a result."""

Watcher = Callable[[ExecutionProgress], object]
Sparse = Mapping[str, Any] | str | None


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
        device_kind: Literal["gpu", "cpu"] = "gpu",
        on_progress: Watcher | None = None,
    ) -> None:
        if not gpu_ids:
            raise UserError("gpu_ids: an empty list. Name at least one device.")
        if wrong := [each for each in gpu_ids if type(each) is not int or each < 0]:
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
        """Evaluate every combination that has no result yet; return the results of all.

        An attention configuration is a name with the maskers of a method (`{"maskers": [...]}`), the name of a preset,
        or None for dense attention. A stub that fails is in `failed_executions`, and all others are evaluated. No
        argument is changed. Raises UserError with every mistake before any work.
        """
        began_s = time.monotonic()
        stubs = self.plan(
            model_names, sparse_attention_configs, benchmark_configs, adapter_config, generation_kwargs or {}
        )
        study = self._study(stubs, adapter_config, generation_kwargs or {}, request_kwargs or {})
        trials = _trials_by_stub(study, stubs)
        before = {state.trial for state in progress_of(study).states if state.state == "ok"}
        skipped = [stub for stub in stubs if trials[stub.result_dir].id in before]
        for stub in skipped:
            print(f"Skipping {stub.title} - results exist", flush=True)
        if len(skipped) < len(stubs):
            self._submit(study, trials, len(skipped))
        folder = study.folder(SCENARIO)
        of_stubs = [trials[stub.result_dir] for stub in stubs]
        found = [(stub, evaluated(each, folder.trial(each.id))) for stub, each in zip(stubs, of_stubs, strict=True)]
        write_tree([trial for _, trial in found], Path(self.base_result_dir))
        took_s = time.monotonic() - began_s
        results = _results(found, len(skipped), took_s)
        self._write_summary(results)
        return results

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
        tasks = [task for each in benchmark_configs for task in _tasks(each)]
        return stubs_of(
            model_names,
            sparse_attention_configs,
            tasks,
            adapter_config,
            generation_kwargs or {},
            self.base_result_dir,
        )

    def _study(
        self,
        stubs: Sequence[BenchmarkStub],
        adapter: AdapterConfig,
        generation: Mapping[str, Any],
        request: Mapping[str, Any],
    ) -> Study:
        """Write the scenario of a matrix into its study, and read it. Raises UserError with its mistakes."""
        root = (Path(self.base_result_dir) / ".seamark").resolve()
        for name in FOLDERS:
            shared = Path("config", name).resolve()
            target = root / "config" / name
            if shared.is_dir() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(shared)
        path = root / "config/scenarios" / f"{SCENARIO}.yaml"
        services = Recipes(config_folder(root, "services"))
        service = service_of(adapter, services)
        settings = {**adapter_settings(adapter, service), **settings_of_generation(generation)}
        for name, value in request.items():
            if name not in REQUEST_KWARGS:
                raise UserError(f"request_kwargs: '{name}' is not known. Known: {', '.join(REQUEST_KWARGS)}.")
            settings[REQUEST_KWARGS[name]] = value
        methods = {stub.sparse_config_name: stub.sparse_attention_config for stub in stubs}
        workload = {
            "component": service.component,
            "service": service.name,
            "model": list(dict.fromkeys(stub.model_name for stub in stubs)),
            **({"method": [_level(name, each) for name, each in methods.items()]} if _takes_methods(service) else {}),
            "task": list(dict.fromkeys(stub.task for stub in stubs)),
            **settings,
        }
        if not _takes_methods(service) and set(methods.values()) != {None}:
            text = f"adapter_config: {service.name} has dense attention alone. Use the adapter 'huggingface'."
            raise UserError(text)
        document = {"scenario": SCENARIO, "repetitions": 1, "workload": workload}
        write_text(path, yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
        return Study.at(root, scenario=str(path), site="local", lanes=json.dumps(self._lanes()))

    def _lanes(self) -> Mapping[str, Any]:
        per_device = -(-self.max_concurrent_runs // len(self.gpu_ids))
        ids = ",".join(map(str, self.gpu_ids))
        return {f"{self._kind}s": ids, "per_device": per_device, "parallel": self.max_concurrent_runs}

    def _submit(self, study: Study, trials: Mapping[str, Trial], skipped: int) -> None:
        """Run `bench submit` to its end, and report progress. Raises UserError or SiteError where it was refused."""
        lanes = self._lanes()
        options = [f"--{self._kind}s", lanes[f"{self._kind}s"], "--per-device", str(lanes["per_device"])]
        command = [sys.executable, "-m", "seamark.cli.main", "submit", "-c", str(study.scenario_path), "--json"]
        environment = dict(os.environ)
        if self.max_concurrent_runs > 1:
            command += [*options, "--parallel", str(lanes["parallel"])]
        elif self._kind == "gpu":
            environment["CUDA_VISIBLE_DEVICES"] = str(self.gpu_ids[0])
        planned = {trial.id for trial in trials.values()}
        seen: Seen = {}
        with subprocess.Popen(
            command, cwd=study.root, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as run:
            assert run.stderr is not None
            try:
                while run.poll() is None:
                    with suppress(subprocess.TimeoutExpired):
                        run.wait(POLL_S)
                    if self._on_progress is not None:
                        self._on_progress(_progress(study, progress_of(study, seen), planned, skipped))
            except BaseException:
                run.terminate()
                raise
            text = run.stderr.read()
        if run.returncode == 2:
            raise UserError(text.strip() or "bench submit refused the matrix.")
        if run.returncode not in (0, 1):
            raise SiteError(text.strip() or f"bench submit ended with exit code {run.returncode}.")

    def _write_summary(self, results: ExecutionResults) -> None:
        """Write execution_summary.json into a folder of this execution: nothing that is resumed lies there."""
        stamp = datetime.now(UTC).strftime("%Y%m%d_%H%M%S")
        folder = Path(self.base_result_dir, f"execution_{stamp}")
        failures = [
            {
                "stub": each.stub.title,
                "error_type": each.error_type,
                "error_message": each.error_message,
                "execution_time": each.execution_time,
            }
            for each in results.failed_executions
        ]
        document = {**results.execution_summary, "failures": failures}
        write_text(folder / "execution_summary.json", f"{json.dumps(document, indent=1)}\n")


def _tasks(config: BenchmarkConfig) -> list[tuple[str, str | None]]:
    """Return the tasks of a benchmark as pairs with a subset. Raises UserError for unknown names."""
    folders = [config_folder(Path.cwd(), "benchmarks")]
    name = config.benchmark_name
    if config.subsets is not None and not config.subsets:
        raise UserError(f"benchmark_configs: '{name}' has an empty list of subsets. Give None for all of them.")
    wanted = [name] if config.subsets is None else [f"{name}/{subset}" for subset in config.subsets]
    found = [task for each in wanted for task in tasks_of(each, folders)]
    return [(benchmark, subset or None) for benchmark, _, subset in (task.partition("/") for task in found)]


def _level(name: str, config: Sparse) -> Mapping[str, Any]:
    """Return a level of `method` under the configuration's name: dense for None, a preset, or maskers. Raises
    UserError for an unknown preset."""
    if not isinstance(config, str):
        return {**(config or {"maskers": []}), "name": name}
    folder = config_folder(Path.cwd(), "methods")
    known = sorted(path.stem for path in folder.glob("*.yaml"))
    if config not in known:
        guess = did_you_mean(config, known) or f" Known: {', '.join(known)}."
        raise UserError(f"sparse_attention_configs: '{config}' is no method.{guess}")
    document = yaml.safe_load((folder / f"{config}.yaml").read_text(encoding="utf-8"))
    return {**document, "name": name}


def _takes_methods(service: Service) -> bool:
    return service.setting("method") is not None


def _trials_by_stub(study: Study, stubs: Sequence[BenchmarkStub]) -> Mapping[str, Trial]:
    """Return the trial of each stub, by the stub's folder."""
    trials: dict[tuple[str, str | None, str], Trial] = {}
    methods = False
    for trial in study.plan.trials:
        methods = bool(trial.settings.get("method"))
        method = setting_name(trial, "method") if methods else None
        trials[str(trial.settings["model"]), method, setting_name(trial, "task")] = trial
    return {
        stub.result_dir: trials[stub.model_name, stub.sparse_config_name if methods else None, stub.task]
        for stub in stubs
    }


def _progress(study: Study, now: Progress, planned: set[str], skipped: int) -> ExecutionProgress:
    """Return the progress of the planned trials, with the deployment that each held device serves."""
    states = [state for state in now.states if state.trial in planned]
    done = sum(state.state == "ok" for state in states)
    held = {}
    for slot, holder in held_here():
        number = slot.split()[1]
        if holder.study == str(study.root) and holder.folder and number.isdigit():
            running = [state.trial for state in states if state.deployment == Path(holder.folder).name]
            held[int(number)] = f"{Path(holder.folder).name}: {len(running)} stubs"
    return ExecutionProgress(
        total_stubs=len(states),
        skipped_stubs=skipped,
        completed_stubs=done - skipped,
        failed_stubs=sum(state.state in ("failed", "timeout", "damaged") for state in states),
        current_executions=held,
    )


def _results(found: Sequence[tuple[BenchmarkStub, EvaluatedTrial]], skipped: int, took_s: float) -> ExecutionResults:
    results = [
        BenchmarkResult(stub=stub, metrics=trial.document(), execution_time=trial.load_s)
        for stub, trial in found
        if trial.whole
    ]
    failures = [_failure(stub, trial) for stub, trial in found if not trial.whole]
    summary = {
        "total_stubs": len(found),
        "skipped_stubs": skipped,
        "completed_stubs": len(results) - skipped,
        "failed_stubs": len(failures),
        "execution_time": took_s,
        "scores": {result.stub.title: result.metrics["scores"].get("score", {}).get("mean") for result in results},
    }
    return ExecutionResults(
        execution_summary=summary, individual_results=results, failed_executions=failures, execution_time=took_s
    )


def _failure(stub: BenchmarkStub, trial: EvaluatedTrial) -> BenchmarkFailure:
    """Return why a stub has no whole result: its load failed, its answers were not scored, or some are missing."""
    load, answers = trial.load, trial.answers
    if load is None:
        category, reason = UNFINISHED, "the run ended before this stub"
    elif not load.ok:
        category, reason = load.category or "failed", load.reason or "no reason is known"
    elif answers is None or answers.status != "ok":
        category, reason = "not_scored", (answers.reason if answers else None) or "its answers were not scored"
    else:
        score = answers.scores.get("score")
        category = "unanswered"
        reason = (
            f"{(load.items or 0) - (score.scored if score else 0)} of {load.items} questions have no scored answer"
        )
    return BenchmarkFailure(stub=stub, error_message=reason, error_type=category, execution_time=trial.load_s)
