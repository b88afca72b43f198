"""Signals that end a process in order."""

import signal
import subprocess
import sys

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
