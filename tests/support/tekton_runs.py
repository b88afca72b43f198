"""Plays exported manifests as Tekton and a node would: matrix, runAfter, onError, sidecars, finally.

Each container is a process in a namespace of process ids of its own, killed when its step ends, as in a pod; its
mounts are folders below one root, put in the place of the paths in arguments and environment.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import yaml

Document = Mapping[str, Any]
Params = Mapping[str, Any]
VARIABLE = re.compile(r"\$\(params(?:\.([\w-]+)|\['([^']+)'\])\)")
PYTHON = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def documents(path: Path) -> list[Document]:
    """Return the documents of a file."""
    return [found for found in yaml.safe_load_all(path.read_text()) if found]


def values(params: Sequence[Document]) -> dict[str, Any]:
    """Return parameters by name."""
    return {param["name"]: param["value"] for param in params}


def combinations(task: Document) -> list[dict[str, Any]]:
    """Return the parameters of each run of a task of a pipeline."""
    own, matrix = values(task.get("params", ())), task.get("matrix")
    if matrix is None:
        return [own]
    if "include" in matrix:
        return [own | values(entry["params"]) for entry in matrix["include"]]
    levels = values(matrix["params"])
    return [own | dict(zip(levels, row, strict=True)) for row in product(*levels.values())]


def filled(value: Any, params: Params) -> Any:
    """Return a value with its parameters, an array in the place of the item that names it."""
    if isinstance(value, dict):
        return {key: filled(inner, params) for key, inner in value.items()}
    if isinstance(value, list):
        found: list[Any] = []
        for item in value:
            whole = re.fullmatch(r"\$\(params\.([\w-]+)\[\*\]\)", item) if isinstance(item, str) else None
            found += params[whole[1]] if whole else [filled(item, params)]
        return found
    return VARIABLE.sub(lambda name: str(params[name[1] or name[2]]), value) if isinstance(value, str) else value


def order_of_ends(tasks: Sequence[Document], lengths: Callable[[Params], float]) -> dict[str, tuple[float, float]]:
    """Return begin and end, in s, of each combination, by its JSON: a task begins when all of `runAfter` have
    ended."""
    ends: dict[str, float] = {}
    found: dict[str, tuple[float, float]] = {}
    for task in tasks:
        begin = max((ends[earlier] for earlier in task.get("runAfter", ())), default=0.0)
        rows = combinations(task)
        for row in rows:
            found[json.dumps(row, sort_keys=True)] = begin, begin + lengths(row)
        ends[task["name"]] = max(begin + lengths(row) for row in rows)
    return found


@cache
def _container() -> tuple[str, ...]:
    """Return what starts a process in a namespace of its own, nothing where that is not allowed."""
    words = ("unshare", *(() if os.geteuid() == 0 else ("--map-root-user",)), "--pid", "--fork")
    words += ("--kill-child", "--mount-proc")
    return words if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0 else ()


@dataclass(kw_only=True)
class Cluster:
    """A cluster with the manifests of a folder, and volumes below `root`."""

    folder: Path
    root: Path
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    codes: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    """Task run -> its steps with their exit codes."""

    def __post_init__(self) -> None:
        found = [each for name in ("stepactions", "experiment-task") for each in self._read(name)]
        self.named = {(each["kind"], each["metadata"]["name"]): each["spec"] for each in found}

    def _read(self, name: str) -> list[Document]:
        return documents(self.folder / "pipeline" / f"{name}.yaml")

    def run(self, name: str, at_once: int = 2, **params: str) -> None:
        """Run each PipelineRun of a file to its end, with other values for some parameters."""
        for run in self._read(name):
            spec = run["spec"]["pipelineSpec"]
            given = {"namespace": "bench"} | {
                key: value
                for key, value in values(run["spec"]["params"]).items()
                if not value.startswith("$(context")
            }
            ended: set[str] = set()
            waiting = [(task["name"], task) for task in spec["tasks"]]
            while waiting:
                ready = [task for _, task in waiting if ended.issuperset(task.get("runAfter", ()))]
                self._run_all(ready, given | params, at_once)
                ended |= {task["name"] for task in ready}
                waiting = [(name, task) for name, task in waiting if name not in ended]
            self._run_all(spec.get("finally", ()), given | params, at_once)

    def _run_all(self, tasks: Sequence[Document], given: Params, at_once: int) -> None:
        with ThreadPoolExecutor(at_once) as pool:
            for task in tasks:
                for number, row in enumerate(combinations(task)):
                    pool.submit(self._task_run, f"{task['name']}-{number}", task, filled(row, given))

    def _task_run(self, name: str, task: Document, row: Params) -> None:
        """Run the pod of a task run: its sidecars beside its steps."""
        spec, pod = self.named["Task", task["taskRef"]["name"]], self.root / "pods" / name
        pod.mkdir(parents=True)
        params = {each["name"]: each.get("default") for each in spec["params"]} | dict(row)
        params = {key: value for key, value in params.items() if key in {each["name"] for each in spec["params"]}}
        volumes = {}
        for volume in filled(spec.get("volumes", []), params):
            claim = volume.get("persistentVolumeClaim")
            volumes[volume["name"]] = self.root / claim["claimName"] if claim else pod / volume["name"]
        for folder in volumes.values():
            folder.mkdir(parents=True, exist_ok=True)
        beside = [self._start(filled(each, params), volumes, pod / each["name"]) for each in spec.get("sidecars", ())]
        codes = self.codes.setdefault(name, [])
        for step in spec["steps"]:
            container: Any = step
            if "ref" in step:
                action = self.named["StepAction", step["ref"]["name"]]
                known = {each["name"] for each in action["params"]}
                passed = filled(values(step["params"]), params)
                assert set(passed) == known, step["name"]
                container = filled({key: value for key, value in action.items() if key != "params"}, passed)
            else:
                container = filled(step, params)
            process = self._start(container, volumes, pod / step["name"])
            codes.append((step["name"], process.wait()))
            if codes[-1][1] and step.get("onError") != "continue":
                break
        for process in beside:
            process.terminate()
            process.wait()

    def _start(self, container: Document, volumes: Mapping[str, Path], log: Path) -> "subprocess.Popen[bytes]":
        """Start a container, which sees the volumes that it mounts; its output is in a file. What it starts ends with
        it."""
        mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container.get("volumeMounts", ())}

        def mounted(text: str) -> str:
            for path, folder in mounts.items():
                text = re.sub(rf"(?<![\w.]){re.escape(path)}(?=/|$)", str(folder), text)
            return text

        environment = {}
        for each in container.get("env", ()):
            if (secret := each.get("valueFrom", {}).get("secretKeyRef")) is None:
                environment[each["name"]] = mounted(each["value"])
            elif secret["key"] in self.secrets.get(secret["name"], {}):
                environment[each["name"]] = self.secrets[secret["name"]][secret["key"]]
        assert not re.search(r"\$\((?!context)", json.dumps(container["args"])), container["args"]
        words = [*_container(), *container["command"], *map(mounted, container["args"])]
        with log.with_suffix(".log").open("ab") as output:
            return subprocess.Popen(
                words,
                cwd=mounted(container["workingDir"]) if "workingDir" in container else "/",
                env=PYTHON | {"HOME": str(self.root)} | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def said(self) -> str:
        """Return what all containers have printed."""
        logs = sorted((self.root / "pods").glob("*/*.log"))
        return "\n".join(f"{path.parent.name}/{path.name}: {path.read_text()[-2000:]}" for path in logs)
