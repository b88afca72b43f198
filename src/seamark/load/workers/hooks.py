"""A driver's hooks stage, populate and quality: run in the service's environment, results returned as JSON."""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from seamark.load.driver import Hooks, Target, hooks_of
from seamark.platform.fork_server.client import ISOLATED_MAIN
from seamark.platform.process_tree import die_with_parent
from seamark.storage.redaction import secrets_here, without

TAIL_LINES = 20
LONGEST_REASON = 500


class PreparationError(Exception):
    """A hook failed in the service's environment; `log_tail` has the last lines of its stderr."""

    def __init__(self, reason: str, log_tail: list[str]) -> None:
        super().__init__("\n".join([reason, *log_tail]))
        self.reason = reason
        self.log_tail = log_tail


def run_preparation(
    hook: Literal["stage", "populate"],
    driver: str,
    target: Target,
    seed: int,
    python: Path | None,
    *,
    on_tick: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """Run `hook` of the driver's module (`module` or `module:Class`) with the interpreter `python` (None: this one).

    Returns the facts that the hook returned, {} for a module without that hook. `on_tick` is called about every 0.1
    s; what it raises ends the hook. Raises PreparationError if the hook fails. Its process is gone then.
    """
    with tempfile.TemporaryDirectory(prefix="seamark-prepare-") as name:
        folder = Path(name)
        task, facts, log = folder / "task.json", folder / "facts.json", folder / "log"
        document = asdict(target) | {"data": str(target.data)}
        task.write_text(json.dumps({"hook": hook, "driver": driver, "seed": seed, "target": document}))
        command = [str(python or sys.executable), ISOLATED_MAIN, "seamark.load.workers.hooks", str(task), str(facts)]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            while _runs(process):
                on_tick()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode != 0:
            said = facts.read_text(encoding="utf-8") if facts.exists() else ""
            tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
            reason = f"ended with exit code {process.returncode}{said and ': '}{said}"
            raise PreparationError(f"{hook} of {driver} {reason}", tail)
        result: dict[str, Any] = json.loads(facts.read_text(encoding="utf-8"))
        return result


def _runs(process: "subprocess.Popen[bytes]") -> bool:
    """Wait for the end of a process, 0.1 s at most; return whether it still runs."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=0.1)
        return False
    return True


def hooks_here(driver: str) -> Hooks | None:
    """Return the hooks that a driver's module declares, None where it cannot be imported in this environment.

    A library of the service that the module imports at its top may lie in the service's environment alone. Hooks are
    then looked up there, which costs the start of an interpreter for each.
    """
    try:
        return hooks_of(driver)
    except (Exception, SystemExit):  # a module may raise anything; its own environment reports it
        return None


def call_hook(driver: str, hook: str, target: Target, seed: int) -> Mapping[str, Any]:
    """Call a hook of a driver's module in this process; {} if the module declares none."""
    function = vars(hooks_of(driver))[hook]
    return {} if function is None else dict(function(target, seed))


def main(argv: list[str]) -> int:
    """Run one hook: `task.json facts.json`. Called through isolated_main.py in the service's environment."""
    die_with_parent()
    task = json.loads(Path(argv[0]).read_text(encoding="utf-8"))
    target = Target(**(task["target"] | {"data": Path(task["target"]["data"])}))
    try:
        facts = call_hook(task["driver"], task["hook"], target, task["seed"])
    except Exception as error:  # what a server or a library says, such as a refused password, is the reason
        said = without(" ".join(f"{type(error).__name__}: {error}".split()), secrets_here())[:LONGEST_REASON]
        Path(argv[1]).write_text(said, encoding="utf-8")
        raise
    Path(argv[1]).write_text(json.dumps(dict(facts), allow_nan=False), encoding="utf-8")
    return 0
