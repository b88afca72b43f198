"""Signals that end a run, one or many, at any time: nothing of it goes on when `bench` has exited."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import psutil
import pytest
from processes import eventually
from rich.console import Console
from study_folder import BENCH, StudyFolder

from seamark.cli import submit
from seamark.planning.study import Study
from seamark.workflow.run_end import END_SIGNALS

pytestmark = pytest.mark.e2e
END_S = 60.0


def start(study: StudyFolder, output: Path) -> "subprocess.Popen[bytes]":
    with output.open("wb") as file:
        return subprocess.Popen(
            [*BENCH, "submit", "-c", "config/scenarios/try.yaml"],
            cwd=study.root,
            env=study.environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


def left_of(study: StudyFolder) -> list[str]:
    """Return the command lines of what is at work in a study, or was started for it."""
    found = []
    for process in study.processes():
        try:
            found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def signalled(study: StudyFolder, output: Path, numbers: Sequence[int], after_s: float, apart_s: float) -> int:
    """Start a run, send it signals, wait for its end; return its exit code. Nothing of it may be left then."""
    run = start(study, output)
    time.sleep(after_s)
    for number in numbers:
        if run.poll() is None:
            run.send_signal(number)
        time.sleep(apart_s)
    code = run.wait(END_S)
    left = left_of(study)
    assert left == [], f"{output.read_text()}\n{left}"
    assert "Traceback" not in output.read_text()
    return code


@pytest.fixture
def long(study: StudyFolder) -> StudyFolder:
    """A study of one trial that takes longer than any test of signals."""
    study.write(repetitions=1, workload={"concurrency": 1, "duration_s": 120})
    return study


def measuring(study: StudyFolder) -> bool:
    return any(study.results.glob("*/.parts/*/*"))


@pytest.mark.covers("E-FR21")
@pytest.mark.parametrize(
    ("numbers", "apart_s"),
    [
        ((signal.SIGINT, signal.SIGINT), 0.3),
        pytest.param((signal.SIGTERM,) * 4, 0.05, marks=pytest.mark.sweep),
        pytest.param((signal.SIGHUP,), 0.0, marks=pytest.mark.sweep),
    ],
    ids=["two interrupts", "four SIGTERM", "a hang-up"],
)
def test_however_often_a_run_that_measures_is_told_to_end_nothing_of_it_goes_on(
    long: StudyFolder, tmp_path: Path, numbers: Sequence[int], apart_s: float
) -> None:
    run = start(long, tmp_path / "output")
    assert eventually(lambda: measuring(long), within_s=60), (tmp_path / "output").read_text()
    for number in numbers:
        run.send_signal(number)
        time.sleep(apart_s)
    assert run.wait(END_S) == 130
    assert left_of(long) == []
    assert "Stopped. `bench submit` resumes." in (tmp_path / "output").read_text()
    assert not list(long.results.glob("*/load.json")), "nothing is recorded of a trial that was cut short"
    long.write(repetitions=1, workload={"concurrency": 1})
    assert long.measure().returncode == 0


@pytest.mark.parametrize("after_s", [0.8, 1.6])
def test_a_run_that_is_told_to_end_while_it_starts_leaves_nothing(
    long: StudyFolder, tmp_path: Path, after_s: float
) -> None:
    assert signalled(long, tmp_path / "output", (signal.SIGTERM, signal.SIGTERM), after_s, 0.1) in (130, -15)


@pytest.mark.sweep
def test_a_hang_up_that_is_ignored_as_under_nohup_ends_nothing(study: StudyFolder, tmp_path: Path) -> None:
    study.write(repetitions=1, workload={"concurrency": 1, "duration_s": 2})
    with (tmp_path / "output").open("wb") as file:
        run = subprocess.Popen(
            ["nohup", *BENCH, "submit", "-c", "config/scenarios/try.yaml"],
            cwd=study.root,
            env=os.environ,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    assert eventually(lambda: measuring(study), within_s=60)
    run.send_signal(signal.SIGHUP)
    assert run.wait(END_S) == 0


@pytest.mark.covers("E-FR21")
@pytest.mark.parametrize("code", [0, 1])
def test_a_signal_that_arrives_when_the_run_has_just_ended_is_no_traceback(
    study: StudyFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def ended(*_: object, **__: object) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "-c", f"raise SystemExit({code})"])

    def follow(
        study: object, console: object, process: "subprocess.Popen[bytes]", signals: object, log: object
    ) -> None:
        process.wait()
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(submit, "start", ended)
    monkeypatch.setattr(submit, "_follow", follow)
    before = {number: signal.getsignal(number) for number in END_SIGNALS}
    run = partial(
        submit._run, Study.at(study.root, scenario="config/scenarios/try.yaml"), Console(), tmp_path / "log", ()
    )
    try:
        if code == 0:
            assert run() == 0, "it was complete"
        else:
            with pytest.raises(KeyboardInterrupt):
                run()
    finally:
        for number, handler in before.items():  # a process that is about to end ignores them
            signal.signal(number, handler)


@pytest.mark.sweep
@pytest.mark.parametrize("case", range(40))
def test_signals_at_any_time_in_any_number_leave_nothing(
    study: StudyFolder, tmp_path: Path, case: int, counted: Callable[[str, str], None]
) -> None:
    chance = random.Random(case)
    study.write(repetitions=2, workload={"concurrency": [1, 2], "duration_s": 1})
    numbers = chance.choices((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), k=chance.randint(1, 5))
    try:
        signalled(study, tmp_path / "output", numbers, chance.uniform(0.1, 14.0), chance.choice((0.0, 0.1, 1.0, 4.0)))
    except subprocess.TimeoutExpired:
        counted("signals", "hung")
        raise
    except AssertionError:
        counted("signals", "left processes")
        raise
    counted("signals", "nothing left")
