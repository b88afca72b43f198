"""Runs bench in this process: what would be a traceback is raised."""

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from seamark.cli.main import main


def run(words: list[str]) -> tuple[int, str]:
    """Run bench in this process; return its code and all that it printed. What would be a traceback is raised."""
    code, said, errors = _run(words)
    return code, said + errors


def said_by(words: list[str], code: int = 0) -> str:
    """Run bench in this process, which ends with this code; return all that it printed."""
    ended, said = run(words)
    assert ended == code, said
    return said


def ended(done: "subprocess.CompletedProcess[str]", code: int | None) -> "subprocess.CompletedProcess[str]":
    """Return a process that has ended, with this exit code unless that is None."""
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done


def bench(*words: str, cwd: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run bench in this process as if it were one of its own, in a folder, with more variables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        patch.setattr(sys, "path", [*sys.path])
        for name, value in environment.items():
            patch.setenv(name, value)
        return subprocess.CompletedProcess(words, *_run(list(words)))


def _run(words: list[str]) -> tuple[int, str, str]:
    said, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", each) for each in ("strict", "backslashreplace"))
    before, sys.argv = sys.argv, ["bench", *words]
    code: Any = 0
    try:
        with redirect_stdout(said), redirect_stderr(errors):
            main()
    except SystemExit as ended:
        code = ended.code or 0
    finally:
        sys.argv = before
    texts = []
    for each in (said, errors):
        each.flush()
        texts.append(each.buffer.getvalue().decode("utf-8"))  # type: ignore[attr-defined]
    return code, texts[0], texts[1]
