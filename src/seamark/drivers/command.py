"""Task that runs one command: its exit code, its run time, figures of its output, and the files that are kept.

The command runs in an empty folder of its own. Whatever it has started ends with it.
"""

import contextlib
import json
import math
import os
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any

from seamark.load.driver import Hooks, Target, Task, TaskFailure, TaskRecorder
from seamark.model.sample import Failure
from seamark.model.service import Value
from seamark.platform.process_tree import (
    PROGRAM,
    become_subreaper,
    descendants,
    kill_below,
    lower_sessions,
    peak_rss_bytes,
    reap,
    set_parent_death_signal,
)

STDOUT, STDERR = "stdout", "stderr"
MOST_OUTPUT_BYTES = 1 << 20
"""Size limit of a kept output: a longer one is cut at its beginning."""
WORK = "work"
RUN_TIME, CPU_TIME, PEAK_RSS = "run_time_s", "cpu_time_s", "peak_rss_mb"
"""Figures that every command has."""
CHECK_MS = 50
"""Interval of looking at the time limit and the memory; the end of the command is seen at once."""
POLL_S = 0.002
"""Interval of looking at the command where the kernel cannot tell of its end."""
LONGEST_TEXT = 200
END_S = 5.0
"""Time between SIGTERM and SIGKILL for a command that is ended."""
TAIL_LINES = 3


class Command(Task):
    """One run of the command in the setting `command`, which is JSON text (config/forms/command.py)."""

    unit = "run"
    kinds: Sequence[str] = ("run",)

    def __init__(self, target: Target) -> None:
        self._target = target
        self._written: Mapping[str, Any] = json.loads(str(target.settings["command"]))

    def run(self, recorder: TaskRecorder, stop: Event) -> None:
        """Run the command, record its run time and its figures. Raises TaskFailure."""
        become_subreaper()
        place = Path(tempfile.mkdtemp(prefix="command-", dir=self._target.data))
        (place / WORK).mkdir()
        self._peak_bytes = 0
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        launcher_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            began_ns = recorder.now_ns()
            code = self._end_of(place, stop)
            ended_ns = recorder.now_ns()
            right = code in self._written.get("success", [0])
            failure = Failure.NONE if right else Failure.SERVER_ERROR
            recorder.sample(0, sent_ns=began_ns, last_ns=ended_ns, status=code & 0x7FFF, failure=failure)
            spent = resource.getrusage(resource.RUSAGE_CHILDREN)
            recorder.quality(RUN_TIME, (ended_ns - began_ns) / 1e9)
            recorder.quality(CPU_TIME, spent.ru_utime + spent.ru_stime - before.ru_utime - before.ru_stime)
            # a program's ru_maxrss begins with the memory of what has launched it, this process
            if peak_bytes := spent.ru_maxrss * 1024 if spent.ru_maxrss > launcher_kb else self._peak_bytes:
                recorder.quality(PEAK_RSS, peak_bytes / 1e6)
            else:
                print(f"{PEAK_RSS} is not known: the command had ended before its memory was read", file=sys.stderr)
            self._keep(place, recorder.folder)
            if stop.is_set():
                return
            if not right:
                raise TaskFailure("program_failed", f"the command {end_of(code)}{last_lines(place / STDERR)}")
            for name, source in self._written.get("figures", {}).items():
                recorder.quality(name, figure(name, source, place))
        finally:
            kill_below(os.getpid())
            shutil.rmtree(place, ignore_errors=True)

    def _end_of(self, place: Path, stop: Event) -> int:
        """Run the command to its end, or to that of the load; return its exit code, 128 and more for a signal."""
        names = {"settings": self._target.settings, "data": str(self._target.data), "work": str(place / WORK)}
        argv = [text.format(**names) for text in self._written["argv"]]
        own = {name: str(text).format(**names) for name, text in self._written.get("environment", {}).items()}
        environment = {**os.environ, **own, **self._target.environment, PROGRAM: str(self._target.data)}
        with (place / STDOUT).open("wb") as output, (place / STDERR).open("wb") as errors:
            try:
                process = subprocess.Popen(
                    argv,
                    cwd=place / WORK,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    start_new_session=True,
                    preexec_fn=lambda: set_parent_death_signal(signal.SIGKILL),
                )
            except (OSError, ValueError) as error:
                raise TaskFailure("program_failed", f"the command cannot be started: {error}") from None
        niceness, lowered = os.getpriority(os.PRIO_PROCESS, 0), set[int]()
        until_s: float | None = None
        with _end_of_process(process.pid) as wait:
            while process.poll() is None:
                if niceness:  # its session is new and has niceness 0
                    lowered = lower_sessions([process.pid], niceness, lowered)
                if stop.is_set() and until_s is None:
                    until_s = time.monotonic() + END_S
                    process.terminate()
                if until_s is not None and time.monotonic() > until_s:
                    process.kill()
                reap(but=[process.pid])
                wait()
                if process.poll() is None:  # not before: a program that has just begun has hardly any memory
                    self._peak_bytes = max(self._peak_bytes, 0, *map(peak_rss_bytes, descendants(os.getpid())))
        code = process.returncode
        return 128 - code if code < 0 else code

    def _keep(self, place: Path, folder: Path) -> None:
        """Copy the output and the files to keep. Raises OSError (no space)."""
        folder.mkdir(exist_ok=True)
        for name in (STDOUT, STDERR):
            (folder / name).write_bytes(_tail(place / name, MOST_OUTPUT_BYTES))
        work = (place / WORK).resolve()
        for pattern in self._written.get("keep", []):
            for path in sorted(path for path in work.glob(pattern) if path.is_file() and not path.is_symlink()):
                if path.resolve().is_relative_to(work):  # not through a linked folder
                    target = folder / path.relative_to(work)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, target)


def lacking(settings: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    """Yield the program of a command that is not on this machine. It begins in an empty folder."""
    written = json.loads(str(settings["command"]))
    program, path = str(written["argv"][0]), written.get("environment", {}).get("PATH", os.environ.get("PATH"))
    if "{" in f"{program}{path}":
        return
    if "/" in program and not program.startswith("/"):
        yield "command", f"'{program}' is looked for in an empty folder. Write its absolute path."
    elif shutil.which(program, path=path) is None:
        yield "command", f"there is no program '{program}' that can be started. Install it, or correct the name."


@contextlib.contextmanager
def _end_of_process(pid: int) -> Iterator[Callable[[], object]]:
    """Yield a function that waits for the end of a child, CHECK_MS at most; on kernels before 5.3 for POLL_S."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        yield lambda: time.sleep(POLL_S)
        return
    ended = select.poll()
    ended.register(descriptor, select.POLLIN)
    try:
        yield lambda: ended.poll(CHECK_MS)
    finally:
        os.close(descriptor)


def figure(name: str, source: Mapping[str, str], place: Path) -> float:
    """Return one figure: the number under a path of a JSON file, or the first group of a regular expression's last
    match. `of` is `stdout` (unless given), `stderr`, or a file of the command's folder. Raises TaskFailure."""
    of = source.get("of", STDOUT)
    file = place / of if of in (STDOUT, STDERR) else place / WORK / of
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
        found = _at(json.loads(text), source["json"]) if "json" in source else _matched(text, source["regex"])
        if isinstance(found, bool) or found is None or not math.isfinite(value := float(found)):
            raise ValueError(f"it is {found}")
        return value
    except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
        why = f"no such file: {of}" if isinstance(error, FileNotFoundError) else str(error)
        raise TaskFailure("figure_missing", f"the figure '{name}' cannot be read: {why[:LONGEST_TEXT]}") from None


def _at(document: Any, path: str) -> Any:
    """Return what lies under a dotted path, such as `jobs.0.read.bw`. Raises LookupError with the first part that is
    not there."""
    for part in path.split("."):
        try:
            document = document[int(part)] if isinstance(document, list) else document[part]
        except (LookupError, TypeError, ValueError):
            raise LookupError(f"the JSON has no '{part}' of '{path}'") from None
    return document


def _matched(text: str, pattern: str) -> str | None:
    matches = [match[1] for match in re.finditer(pattern, text, re.MULTILINE)]
    if not matches:
        raise LookupError(f"nothing matches '{pattern}'")
    return matches[-1]


def _tail(path: Path, most_bytes: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - most_bytes))
        return file.read()


def last_lines(path: Path) -> str:
    """Return the last lines of an output in short, without control characters."""
    lines = _tail(path, 1 << 14).decode(errors="replace").strip().splitlines()[-TAIL_LINES:]
    shown = ["".join(character for character in line if character.isprintable())[:LONGEST_TEXT] for line in lines]
    return f": {' | '.join(shown)}" if shown else ""


def end_of(code: int) -> str:
    """Return how a command ended, by its exit code; 128 and more for a signal."""
    if code > 128 and code - 128 in {int(number) for number in signal.Signals}:
        return f"was ended by {signal.Signals(code - 128).name}"
    return f"ended with exit code {code}"


HOOKS = Hooks(lacking=lacking)
