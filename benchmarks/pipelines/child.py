"""A process that measures on request, in an environment of its own: a line of JSON asks, a line of JSON answers.

Standard library alone: scripts of this folder import it under other Pythons.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any, Self


class Child:
    """A script of this folder at work under some Python. It ends with the block that opens it."""

    def __init__(self, python: Path | str, script: str, *arguments: object, **variables: str) -> None:
        self._output = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        command = [str(python), str(Path(__file__).with_name(script)), *map(str, arguments)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._output}
        self._process = subprocess.Popen(command, env={**os.environ, **variables}, text=True, **pipes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.communicate(timeout=60)  # the end of its input ends it
        self._process.kill()

    def measure(self, **asked: Any) -> Any:
        """Return what the script measures. Raises ChildProcessError with its last line of output if it has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            print(json.dumps(asked), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            self._output.seek(0)
            raise ChildProcessError(next(reversed(self._output.read().splitlines()), "no output"))
        return json.loads(answer)


def answer(measure: Callable[..., Any]) -> None:
    """Answer questions until there are no more. What libraries print goes to the standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(measure(**json.loads(line))), file=answers, flush=True)


def us_a_stage(call: Callable[[int], object], depth: int, queries: int) -> float:
    """Return the time of one stage in us, from the end of the first query, which is left out, to that of the last."""
    call(0)
    began_s = perf_counter()
    for number in range(1, queries + 1):
        call(number)
    return (perf_counter() - began_s) / queries / depth * 1e6
