"""Runs questions of a test in a service's own environment, made from its lock on first use."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
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
    folders = tuple(folder for folder in sys.path if Path(folder).is_relative_to(TESTS))
    read_at_import = tuple(pair for pair in os.environ.items() if pair[0].startswith("HF_"))
    server = _answering(environment_root, module, folders, read_at_import)
    assert server.stdin is not None
    assert server.stdout is not None
    with NamedTemporaryFile("r", encoding="utf-8", errors="replace") as output:
        asked = {"question": question, "told": told, "environment": dict(os.environ), "output": output.name}
        server.stdin.write(json.dumps(asked) + "\n")
        server.stdin.flush()
        code = server.stdout.readline()
        text = output.read()
    assert code == "0\n", (code, text[-4000:])
    return json.loads(text.splitlines()[-1])


@cache
def _answering(
    root: Path, module: str, folders: tuple[str, ...], _: tuple[tuple[str, str], ...]
) -> "subprocess.Popen[str]":
    """Return the process that answers questions of a module, and ends with this one."""
    return subprocess.Popen(
        [str(root / "bin" / "python"), str(ISOLATED_MAIN), "forked_answers", module],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
