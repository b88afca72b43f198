"""Requests/s without streaming: nginx on one core, a client on the other, taking turns."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from environments import peer
from load import ClientError
from machine import SERVER_CORE
from turn import last_words, running

CONNECTIONS = 64
HERE = Path(__file__).parent
NGINX = """
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{ listen 127.0.0.1:{port}; location / {{ return 200 "ok"; }} }}
}}
"""
LOCUST = """
from locust import FastHttpUser, constant, task
class User(FastHttpUser):
    wait_time = constant(0)
    @task
    def get(self):
        self.client.get("/")
"""


def get(rounds: int, seconds: float, port: int = 18080) -> None:
    """Measure every client in turns and print the medians side by side."""
    for tool in ("nginx", "wrk"):
        if shutil.which(tool) is None:
            print(f"GET: {tool} is not installed: apt-get update && apt-get install nginx-light wrk")
            return
    clients: dict[str, Callable[[str, float], float]] = {
        "wrk": by_wrk,
        "seamark": by_seamark,
        "aiohttp + uvloop": by_aiohttp,
        "locust, FastHttpUser": by_locust,
    }
    seen: dict[str, list[float | None]] = {name: [] for name in clients}
    why: dict[str, str] = {}
    peer("aiohttp"), peer("locust")
    with nginx(port) as url:
        for number in range(rounds):
            for name in clients if number % 2 else reversed(clients):
                try:
                    seen[name].append(clients[name](url, seconds))
                except (ClientError, subprocess.SubprocessError, OSError) as error:
                    seen[name].append(None)
                    why[name] = str(error)
    print(f"\nGET of two bytes, {CONNECTIONS} connections; medians of {rounds} interleaved rounds of {seconds:g} s")
    print(f"{'client':<24}{'requests/s':>12}{'to wrk':>8}   by round: least, most")
    base = [rate for rate in seen["wrk"] if rate]
    for name, rates in seen.items():
        good = [rate for rate in rates if rate]
        if not good or not base:
            print(f"{name:<24}failed: {why.get(name, 'wrk failed')}")
            continue
        ratios = [one / other for one, other in zip(rates, seen["wrk"], strict=True) if one and other]
        middle = statistics.median(good)
        print(
            f"{name:<24}{middle:>12,.0f}{middle / statistics.median(base):>8.3f}"
            f"   {min(ratios):.3f}, {max(ratios):.3f}"
        )


@contextmanager
def nginx(port: int) -> Iterator[str]:
    """Run nginx with one worker on the server's core; give its address."""
    with tempfile.TemporaryDirectory(prefix="seamark-nginx-") as folder:
        config = Path(folder) / "nginx.conf"
        config.write_text(NGINX.format(folder=folder, port=port))
        command = ["nginx", "-e", f"{folder}/error.log", "-c", str(config), "-p", folder]
        process = subprocess.Popen(
            ["taskset", "-c", str(SERVER_CORE), *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/"
        finally:
            for child in psutil.Process(process.pid).children():
                child.terminate()
            process.terminate()
            process.wait()


def by_wrk(url: str, seconds: float, script: Path | None = None) -> float:
    """Return wrk's requests/s with one thread."""
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{max(1, round(seconds))}s"]
    said = output_of([*command, *(["-s", str(script)] if script else []), url])
    return float(next(line.split()[1] for line in said.splitlines() if line.startswith("Requests/sec")))


def by_seamark(url: str, seconds: float) -> float:
    """Return the engine's requests/s with one worker, as a trial runs it."""
    with tempfile.TemporaryDirectory(prefix="seamark-get-") as name:
        file = Path(name) / "load.json"
        settings = {"url": url, "concurrency": CONNECTIONS, "duration_s": seconds}
        asked = {"settings": settings, "port": 0, "driver": "seamark.drivers.http:Http", "read": False}
        file.write_text(json.dumps(asked))
        output_of([sys.executable, HERE / "ours.py", file])
        report = json.loads(file.with_name("said.json").read_text())["report"]
    return float(report["completed"] / report["wall_s"])


def by_aiohttp(url: str, seconds: float) -> float:
    """Return aiohttp's requests/s."""
    command = [peer("aiohttp") / "python", HERE / "aiohttp_client.py", url, CONNECTIONS, seconds]
    return float(output_of(command))


def by_locust(url: str, seconds: float) -> float:
    """Return locust's requests/s: the median of its full seconds."""
    with tempfile.TemporaryDirectory(prefix="seamark-locust-") as name:
        file = Path(name) / "locustfile.py"
        file.write_text(LOCUST)
        users = ["-u", CONNECTIONS, "-r", CONNECTIONS, "-t", f"{round(seconds) + 2}s"]
        words = [
            *users,
            "--headless",
            "--only-summary",
            "--json-file",
            Path(name) / "said",
            "--host",
            url.rstrip("/"),
        ]
        output_of([peer("locust") / "locust", "-f", file, *words])
        (said,) = json.loads((Path(name) / "said.json").read_text())
    by_second = [said["num_reqs_per_sec"][second] for second in sorted(said["num_reqs_per_sec"], key=int)]
    return float(statistics.median(by_second[1:-1] or by_second))


def output_of(command: list[object]) -> str:
    """Run a command on the client's core and return what it printed. Raises ClientError."""
    with tempfile.TemporaryDirectory(prefix="seamark-run-") as name:
        folder = Path(name)
        with running(list(map(str, command)), dict(os.environ), folder) as process:
            process.wait(120)
        if process.returncode != 0:
            raise ClientError(f"ended with {process.returncode}: {last_words(folder)}")
        return (folder / "client.log").read_text()
