"""Seamark's load engine against other clients: `python benchmarks/load_engine [--part sse truth ...]`.

All clients do the same work in turns, on the last core; the server has the first: nginx for plain GET, else a
compiled OpenAI API with known times. Other clients come from PyPI into environments in the cache folder, created on
first use (guidellm alone takes 6 GB); nginx, wrk and a C compiler from the distribution: apt-get install nginx-light
wrk gcc libc6-dev. A client that fails is a row of the table.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

import cost
import get
import streams
import truth
import versions
from environments import FOR_VLLM, PINS, vllm
from machine import CORES, SERVER_CORE, describe

PARTS = ("get", "sse", "chunks", "truth", "lag", "memory", "start")


def main() -> None:
    """Measure the requested parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--rounds", type=int, default=3, help="of get, sse, chunks and start")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a turn of get, sse and chunks, about")
    parser.add_argument("--beside", type=Path, help="a checkout of another version with its .venv: only these two")
    asked = parser.parse_args()
    if len(CORES) < 2:
        sys.exit("this needs two cores: one for the server, one for each client in its turn")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers and clients end with us
    print(describe())
    if asked.beside:
        os.sched_setaffinity(0, {SERVER_CORE})
        versions.versions(asked.beside.resolve(), asked.rounds, asked.seconds)
        return
    pins = [pin for pins in PINS.values() for pin in pins]
    print(f"peers: {', '.join(pins)}, vllm of envs/vllm.lock ({vllm().parent.name}) with {FOR_VLLM[0]}", flush=True)
    os.sched_setaffinity(0, {SERVER_CORE})
    for part in asked.part:
        if part == "get":
            get.get(asked.rounds, asked.seconds)
        elif part == "sse":
            streams.sse(asked.rounds, asked.seconds)
        elif part == "chunks":
            streams.chunks(asked.rounds, asked.seconds)
        elif part == "truth":
            truth.truth()
        elif part == "lag":
            truth.lag()
        elif part == "memory":
            cost.memory()
        else:
            cost.start(asked.rounds)


if __name__ == "__main__":
    main()
