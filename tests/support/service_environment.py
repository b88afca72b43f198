"""Runs questions of a test in a service's own environment, made from its lock on first use."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import seamark
from seamark.services.runtimes.environments import prepare_environment

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
CACHE = Path(os.environ.get("SEAMARK_CACHE") or Path.home() / ".cache" / "seamark")
ISOLATED_MAIN = Path(seamark.__file__).parent / "platform/isolated_main.py"


def environment(name: str) -> Path:
    """Return the root of a service's environment."""
    return prepare_environment(name, ROOT / "envs", CACHE / "envs")


def ask(environment_root: Path, module: str, question: str, **told: Any) -> Any:
    """Call `question(**told)` of a module of the tests in that environment; return its answer through JSON."""
    folders = [folder for folder in sys.path if Path(folder).is_relative_to(TESTS)]
    done = subprocess.run(
        [str(environment_root / "bin" / "python"), str(ISOLATED_MAIN), module, question, json.dumps(told)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])
