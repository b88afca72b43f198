"""Small GETs of one client core: Seamark's S3 driver, boto3, minio and aiobotocore against nginx on the other core.

    python benchmarks/s3_boto3.py --rounds 5 --seconds 3

nginx (apt-get install nginx-light) stands in for an object store that is never the bottleneck: it sends files that
lie as a path-style bucket does, with the headers of an object and a request id of its own for each, and verifies no
signature. Its share of its core is printed: near 100 % the client could have done more. All clients read whole
objects of many keys and check their length; Seamark signs before the clock starts and keeps a record of each request,
as in a trial, where the others sign each request and count. boto3 and minio get as many threads as are best for them
in a round before. boto3 comes from the service's own environment, minio and aiobotocore from PyPI into environments
in the cache folder. Processor time is that of the client, for one request.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from seamark.load.coordinator.coordinator import LoadJob, run_load
from seamark.load.workers.records import read_segments
from seamark.services.runtimes.environments import prepare_environment

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("SEAMARK_CACHE") or Path.home() / ".cache" / "seamark")
PINS = {"minio": ("minio==7.2.20",), "aiobotocore": ("aiobotocore==3.10.0", "uvloop==0.23.0")}
BUCKET, OBJECTS = "bench", 256
THREADS = (1, 2, 4, 8, 16)
CONNECTIONS = 64
NGINX = """
{user}
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  tcp_nodelay on;
  open_file_cache max=4096 inactive=1h;
  default_type binary/octet-stream;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    root {folder}/objects;
    add_header x-amz-request-id $request_id;
  }}
}}
"""
TOLD = """
import json, random, sys, threading, time
port, bucket, objects, size, workers, seconds = json.loads(sys.argv[1])
endpoint = f"http://127.0.0.1:{port}"
draw = random.Random(1)
keys = [f"get/{draw.randrange(objects):07d}" for _ in range(4096)]

def by_threads(get):
    get(keys[0])
    counts, end = [0] * workers, time.monotonic() + seconds
    def user(number):
        at = number
        while time.monotonic() < end:
            assert len(get(keys[at % len(keys)])) == size
            counts[number] += 1
            at += workers
    threads = [threading.Thread(target=user, args=(number,)) for number in range(workers)]
    before, began = time.process_time(), time.monotonic()
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(json.dumps([sum(counts), time.monotonic() - began, time.process_time() - before]))
"""
BOTO3 = """
import boto3
from botocore.client import Config
s3 = boto3.client("s3", endpoint_url=endpoint, aws_access_key_id="key", aws_secret_access_key="secret",
    region_name="us-east-1", config=Config(s3={"addressing_style": "path"}, max_pool_connections=workers))
by_threads(lambda key: s3.get_object(Bucket=bucket, Key=key)["Body"].read())
"""
MINIO = """
import urllib3
from minio import Minio
pool = urllib3.PoolManager(maxsize=workers)
s3 = Minio(f"127.0.0.1:{port}", access_key="key", secret_key="secret", secure=False, region="us-east-1",
    http_client=pool)
def get(key):
    reply = s3.get_object(bucket, key)
    try:
        return reply.read()
    finally:
        reply.close()
        reply.release_conn()
by_threads(get)
"""
AIOBOTOCORE = """
import asyncio
import uvloop
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session

async def main():
    config = AioConfig(s3={"addressing_style": "path"}, max_pool_connections=workers)
    async with get_session().create_client("s3", endpoint_url=endpoint, aws_access_key_id="key",
            aws_secret_access_key="secret", region_name="us-east-1", config=config) as s3:
        count = 0
        async def get(key):
            reply = await s3.get_object(Bucket=bucket, Key=key)
            async with reply["Body"] as stream:
                return await stream.read()
        await get(keys[0])
        end = time.monotonic() + seconds
        async def user(number):
            nonlocal count
            at = number
            while time.monotonic() < end:
                assert len(await get(keys[at % len(keys)])) == size
                count += 1
                at += workers
        before, began = time.process_time(), time.monotonic()
        await asyncio.gather(*(user(number) for number in range(workers)))
        print(json.dumps([count, time.monotonic() - began, time.process_time() - before]))

uvloop.run(main())
"""
PEERS = {"boto3": BOTO3, "minio": MINIO, "aiobotocore": AIOBOTOCORE}


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Result of a client in one run, and the server's ratio of its core."""

    rate_rps: float
    cpu_us: float
    server_ratio: float


def main() -> None:
    """Measure every size and client in turns and print the medians side by side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--sizes", nargs="+", type=int, default=[1024, 16384], help="bytes of an object")
    parser.add_argument("--clients", nargs="+", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--port", type=int, default=18081)
    asked = parser.parse_args()
    if shutil.which("nginx") is None:
        sys.exit("nginx is not installed: apt-get update && apt-get install nginx-light")
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("this needs two cores: one for the server, one for each client in its turn")
    pythons = {"seamark": prepare_environment("s3", ROOT / "envs", CACHE / "envs") / "bin" / "python"}
    pythons |= {name: pythons["seamark"] if name == "boto3" else peer(name) for name in asked.clients}
    for size in asked.sizes:
        seen: dict[str, list[Seen]] = {name: [] for name in pythons}
        with nginx(asked.port, cores[0], size) as (server, data):
            os.sched_setaffinity(0, {cores[-1]})
            workers = {"seamark": CONNECTIONS, "aiobotocore": CONNECTIONS}
            for name in asked.clients:
                workers.setdefault(name, best_threads(pythons[name], name, asked.port, size))
            for number in range(asked.rounds):
                for name in pythons if number % 2 else reversed(pythons):
                    before, began = busy_s(server), time.monotonic()
                    if name == "seamark":
                        count, span_s, cpu_s = by_seamark(pythons[name], data, asked.port, size, asked.seconds)
                    else:
                        count, span_s, cpu_s = by_peer(
                            pythons[name], name, asked.port, size, workers[name], asked.seconds
                        )
                    server_ratio = (busy_s(server) - before) / min(span_s, time.monotonic() - began)
                    one = Seen(rate_rps=count / span_s, cpu_us=cpu_s / count * 1e6, server_ratio=server_ratio)
                    seen[name].append(one)
            os.sched_setaffinity(0, cores)
        print_table(asked, size, workers, seen)


def print_table(
    asked: argparse.Namespace, size: int, workers: Mapping[str, int], seen: Mapping[str, list[Seen]]
) -> None:
    """Print medians over the rounds, and by round how much faster Seamark was."""
    print(f"\nGET of {size:,} bytes, one client core; medians of {asked.rounds} interleaved rounds")
    print(
        f"{'client':<12}{'at once':>8}{'requests/s':>12}{'CPU us':>8}{'nginx':>7}"
        "   Seamark to it: least, median, most"
    )
    for name, runs in seen.items():
        rate, cpu_us, server = (
            statistics.median(getattr(run, field) for run in runs) for field in ("rate_rps", "cpu_us", "server_ratio")
        )
        ratios = [ours.rate_rps / theirs.rate_rps for ours, theirs in zip(seen["seamark"], runs, strict=True)]
        line = f"{name:<12}{workers[name]:>8}{rate:>12,.0f}{cpu_us:>8.1f}{server:>7.0%}"
        shown = f"{min(ratios):.1f}, {statistics.median(ratios):.1f}, {max(ratios):.1f}"
        print(line if name == "seamark" else f"{line}   {shown}")


def peer(name: str) -> Path:
    """Return the interpreter of a peer's environment, made when it is not there."""
    folder = CACHE / "peers" / name
    complete, pins = folder / ".complete", "\n".join(PINS[name])
    if not complete.exists() or complete.read_text() != pins:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", *PINS[name]], check=True)
        complete.write_text(pins)
    return folder / "bin" / "python"


@contextmanager
def nginx(port: int, core: int, size: int) -> Iterator[tuple[psutil.Process, Path]]:
    """Run nginx with one worker on one core over a bucket of objects of one size; give that worker and the folder."""
    with tempfile.TemporaryDirectory(prefix="seamark-s3-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        objects = folder / "objects" / BUCKET / "get"
        objects.mkdir(parents=True)
        for number in range(OBJECTS):
            (objects / f"{number:07d}").write_bytes(os.urandom(size))
        config = folder / "nginx.conf"
        user = "user root;" if os.geteuid() == 0 else ""
        config.write_text(NGINX.format(folder=folder, port=port, user=user))
        command = ["taskset", "-c", str(core), "nginx", "-e", f"{folder}/error.log", "-c", str(config), "-p", name]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(0.5)
            (worker,) = psutil.Process(process.pid).children()
            yield worker, folder
        finally:
            for child in psutil.Process(process.pid).children():
                child.terminate()
            process.terminate()
            process.wait()


def busy_s(process: psutil.Process) -> float:
    """Return the processor time that a process has used."""
    times = process.cpu_times()
    return float(times.user + times.system)


def best_threads(python: Path, name: str, port: int, size: int) -> int:
    """Return the number of threads at which a blocking client is fastest, by a second of each."""
    rates = {}
    for threads in THREADS:
        count, span_s, _ = by_peer(python, name, port, size, threads, 1.0)
        rates[threads] = count / span_s
    return max(rates, key=lambda threads: rates[threads])


def by_peer(python: Path, name: str, port: int, size: int, workers: int, seconds: float) -> tuple[int, float, float]:
    """Return requests, seconds and processor seconds of a peer."""
    told = json.dumps([port, BUCKET, OBJECTS, size, workers, seconds])
    done = subprocess.run([python, "-c", TOLD + PEERS[name], told], check=True, capture_output=True, text=True)
    count, span_s, cpu_s = json.loads(done.stdout)
    return int(count), float(span_s), float(cpu_s)


def by_seamark(python: Path, data: Path, port: int, size: int, seconds: float) -> tuple[int, float, float]:
    """Return requests, seconds and processor seconds of the driver under the load engine, as a trial runs it."""
    (data / "credentials").write_text("key,secret")
    settings: dict[str, Any] = {
        "operation": "get",
        "object_bytes": size,
        "objects": OBJECTS,
        "bucket": BUCKET,
        "concurrency": CONNECTIONS,
        "duration_s": seconds,
        "warmup_s": 0.0,
        "timeout_s": 10.0,
    }
    job = LoadJob(
        driver="seamark.drivers.s3:S3", workers="wire", settings=settings, seed=1, data=data, ports={"main": port}
    )
    outcome = run_load(job, python, data / "parts")
    samples = read_segments(outcome.segments)
    assert not samples["failure"].any()
    (report,) = outcome.reports
    return len(samples), float(report.wall_s), float(report.cpu_s)


if __name__ == "__main__":
    main()
