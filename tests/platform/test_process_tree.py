"""Signals that end a process in order, and priorities of processes."""

import os
import signal
import subprocess
import sys
import time

import pytest
from processes import autogroup, eventually

from seamark.platform.process_tree import kill_with_mark, lower_session_priority, lower_sessions, with_mark

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


@pytest.mark.slow
def test_the_first_signal_exits_after_the_clean_up_and_a_second_one_does_not_break_that_off():
    with subprocess.Popen([sys.executable, "-c", CODE], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "cleaning\n"
        process.send_signal(signal.SIGHUP)
        assert process.stdout.read() == "clean\n"
    assert process.returncode == 128 + signal.SIGTERM


@pytest.mark.slow
def test_an_ignored_signal_stays_ignored():
    nohup = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, "-c", CODE]
    with subprocess.Popen(nohup, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "cleaning\nclean\n"
    assert process.returncode == 128 + signal.SIGTERM


PUT_OFF = """
import signal, sys
from seamark.platform.process_tree import exit_on_signals, signals_put_off
with exit_on_signals(signal.SIGTERM):
    with signals_put_off(signal.SIGTERM):
        print("up", flush=True)
        sys.stdin.readline()
        print("whole", flush=True)
    print("not reached", flush=True)
"""


def test_a_signal_that_is_put_off_has_its_effect_after_the_block():
    with subprocess.Popen(
        [sys.executable, "-c", PUT_OFF], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert process.communicate("\n")[0] == "whole\n"
    assert process.returncode == 128 + signal.SIGTERM


ORPHAN = """
import os, subprocess
from seamark.platform import process_tree

process_tree.become_subreaper()
script = "sleep 600 & echo $!; read line"
parent = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
orphan = int(parent.stdout.readline())
listed = process_tree.children

def children(pid):
    found = listed(pid)
    if pid == os.getpid() and not parent.stdin.closed:
        parent.stdin.close()
        os.waitid(os.P_PID, parent.pid, os.WEXITED | os.WNOWAIT)
    return found

process_tree.children = children
alive = process_tree.alive_below(os.getpid())
process_tree.kill_below(os.getpid())
print(alive == [orphan], process_tree.status(orphan).state)
"""


def test_a_child_whose_parent_ends_between_two_looks_is_found():
    done = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True Z\n", done.stderr


def test_all_with_a_mark_are_killed_wherever_they_have_gone_and_no_others(tmp_path):
    script = "setsid setsid sleep 600 & setsid sleep 600 & wait"
    marks = [f"SEAMARK_TRY={tmp_path}/{name}" for name in ("one", "other")]
    one, other = (
        subprocess.Popen(["sh", "-c", script], env=os.environ | dict([mark.split("=", 1)]), start_new_session=True)
        for mark in marks
    )
    try:
        assert eventually(lambda: [len(with_mark(mark)) for mark in marks] == [3, 3])
        assert kill_with_mark(marks[0])
        assert [len(with_mark(mark)) for mark in marks] == [0, 3]
        assert one.wait(5) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for mark in marks:
            kill_with_mark(mark)
        other.wait(5)


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
@pytest.mark.serial
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
