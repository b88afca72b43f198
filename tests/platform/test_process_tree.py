"""Signals that end a process in order, and priorities of processes."""

import os
import signal
import subprocess
import sys
import time

import pytest
from processes import autogroup

from seamark.platform.process_tree import lower_session_priority, lower_sessions

CODE = """
import signal, sys, time
from seamark.platform.process_tree import exit_on_signals
with exit_on_signals(signal.SIGTERM, signal.SIGHUP):
    try:
        print("up", flush=True)
        time.sleep(30)
    finally:
        print("cleaning", flush=True)
        time.sleep(0.5)
        print("clean", flush=True)
"""


def test_the_first_signal_exits_after_the_clean_up_and_a_second_one_does_not_break_that_off():
    with subprocess.Popen([sys.executable, "-c", CODE], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "cleaning\n"
        process.send_signal(signal.SIGHUP)
        assert process.stdout.read() == "clean\n"
    assert process.returncode == 128 + signal.SIGTERM


def test_an_ignored_signal_stays_ignored():
    nohup = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, "-c", CODE]
    with subprocess.Popen(nohup, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "cleaning\nclean\n"
    assert process.returncode == 128 + signal.SIGTERM


BURNER = """
import os, sys, time
from seamark.platform.process_tree import lower_own_priority
os.sched_setaffinity(0, {int(sys.argv[1])})
lower_own_priority(int(sys.argv[2]))
print("up", flush=True)
until_s = float(sys.stdin.readline())
while time.monotonic() < until_s:
    pass
print(time.process_time())
"""


@pytest.mark.slow
@pytest.mark.parametrize("session", [False, True], ids=["one session", "sessions of their own"])
def test_a_process_of_lower_priority_gets_less_of_a_core_whatever_its_session_is(session: bool):
    core = str(max(os.sched_getaffinity(0)))
    processes = {
        niceness: subprocess.Popen(
            [sys.executable, "-c", BURNER, core, niceness],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=session,
        )
        for niceness in ("0", "10")
    }
    for process in processes.values():
        assert process.stdout.readline() == "up\n"
    until_s = time.monotonic() + 1.5
    for process in processes.values():
        process.stdin.write(f"{until_s}\n")
        process.stdin.flush()
    used_s = {niceness: float(process.communicate()[0]) for niceness, process in processes.items()}
    assert used_s["0"] > 3 * used_s["10"]


def test_a_session_that_is_lowered_is_lowered_once():
    with subprocess.Popen(["sleep", "30"], start_new_session=True) as process:
        lowered = lower_sessions([process.pid], 7)
        assert (lowered, autogroup(process.pid)) == ({process.pid}, 7)
        lower_session_priority(process.pid, 9)
        assert lower_sessions([process.pid], 7, lowered) == lowered
        assert autogroup(process.pid) == 9
        assert lower_sessions([], 7, lowered) == set(), "it has ended"
        process.kill()


def test_a_process_that_has_ended_has_no_session_to_lower():
    with subprocess.Popen(["true"]) as process:
        process.wait()
        assert lower_sessions([process.pid], 7) == set()
