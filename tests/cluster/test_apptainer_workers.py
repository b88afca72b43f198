"""Workers of a load in an image: forked there or started one by one, seen as any other, and ended with their load."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from boxes import Boxed
from processes import eventually
from server_bench import Bench, kill

from seamark.load.coordinator.coordinator import LoadJob, run_load
from seamark.services.images.images import Image
from seamark.services.runtimes.containers import client_environment
from seamark.services.supervisor import deployment as servers

pytestmark = [pytest.mark.services, pytest.mark.cluster]

SETTINGS = {"pattern": "closed", "concurrency": 2, "duration_s": 2.0, "warmup_s": 0.0, "timeout_s": 5.0, "shards": 2}
A_LOAD = """
import json, os, sys
from pathlib import Path
from seamark.load.coordinator.coordinator import LoadJob, run_load
settings, port, data, python, parts, forked = json.loads(sys.argv[1])
job = LoadJob(driver="seamark.drivers.null:Null", workers="wire", settings=settings, seed=1, data=Path(data),
              host="127.0.0.1", ports={"main": port})
print("begun", flush=True)
run_load(job, Path(python), Path(parts), owner=os.getpid() if forked else None)
"""


@pytest.fixture
def image(boxes: Boxed) -> Image:
    return boxes.image("null")


@pytest.fixture
def python(boxes: Boxed, image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    site = boxes.study().site
    return client_environment(image, site, (), tmp_path, tmp_path / "client") / "bin" / "python"


@pytest.fixture
def port() -> Iterator[int]:
    from seamark.services.ephemeral_server import ephemeral_server

    with ephemeral_server("seamark.testservers.null") as port:
        yield port


def settings(**changes: object) -> dict[str, object]:
    from seamark.patterns.table import LOAD_SETTINGS

    return {each.name: each.default for each in LOAD_SETTINGS} | SETTINGS | changes


def inside(image: Image) -> set[int]:
    """Return the processes that run in an image."""
    mark = f"APPTAINER_CONTAINER={image.path}".encode()
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark in (entry / "environ").read_bytes():
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


@pytest.mark.covers("E-FR25")
@pytest.mark.parametrize("forked", [True, pytest.param(False, marks=pytest.mark.sweep)], ids=["forked", "started"])
def test_a_load_is_measured_by_workers_in_an_image(
    python: Path, image: Image, port: int, tmp_path: Path, forked: bool
):
    job = LoadJob(
        driver="seamark.drivers.null:Null",
        workers="wire",
        settings=settings(),
        seed=1,
        data=tmp_path,
        host="127.0.0.1",
        ports={"main": port},
    )
    before, seen, names = inside(image), set[int](), set[str]()

    def look() -> None:
        seen.update(inside(image))
        for pid in seen - before:
            with contextlib.suppress(OSError):
                names.add(Path(f"/proc/{pid}/comm").read_text().strip())

    outcome = run_load(job, python, tmp_path / "parts", look, owner=os.getpid() if forked else None)
    assert [report.ok for report in outcome.reports] == [True, True], outcome.log_tail
    assert outcome.completed > 100
    pids = {report.pid for report in outcome.reports}
    assert len(pids) == 2
    assert pids <= seen
    assert ("worker:run" in names) == forked
    cpu = [line for line in (tmp_path / "parts" / "client.csv").read_text().splitlines() if ",cpu_" in line]
    assert cpu, "what the workers take is watched"
    assert forked or eventually(lambda: inside(image) <= before)


@pytest.mark.covers("E-SVR06")
@pytest.mark.parametrize("forked", [True, pytest.param(False, marks=pytest.mark.sweep)], ids=["forked", "started"])
def test_no_worker_in_an_image_outlives_its_load(python: Path, image: Image, port: int, tmp_path: Path, forked: bool):
    told = json.dumps([settings(duration_s=60.0), port, str(tmp_path), str(python), str(tmp_path / "parts"), forked])
    before = inside(image)  # a fork server of a load before this one waits a while for another
    load = subprocess.Popen([sys.executable, "-c", A_LOAD, told], stdout=subprocess.PIPE, text=True)
    assert load.stdout is not None
    load.stdout.readline()
    assert eventually(lambda: (tmp_path / "parts" / "client.csv").exists(), within_s=30.0)
    assert len(inside(image) - before) >= 2
    kill(load.pid)
    load.wait()
    load.stdout.close()
    assert eventually(lambda: inside(image) <= before, within_s=20.0)


def test_a_hook_that_fails_in_an_image_says_why(boxes: Boxed, image: Image, tmp_path: Path):
    study = boxes.study()
    service = study.services["postgres"]  # whose library is not in the image of the null service
    bench = Bench(root=tmp_path, site=study.site, service=service)
    answer = bench.serve(image=boxes.image("postgres"), client=image, **defaults(service))
    servers.stop(bench.folder())
    assert (answer["status"], answer["category"]) == ("failed", "setup_failed")
    assert "No module named 'psycopg2'" in "\n".join(answer["log_tail"])


def defaults(service: object) -> dict[str, object]:
    return {one.name: one.default for one in service.settings if one.role == "deployment"}  # type: ignore[attr-defined]
