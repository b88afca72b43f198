"""Servers in images under the supervisor: the same that is asked of them without one."""

import csv
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from boxes import ROOT, Boxed
from processes import eventually
from server_bench import Bench, kill, left_of, runs
from shipped import SERVICES

from seamark.model.service import Part, PartImage
from seamark.model.site import Site
from seamark.platform.process_tree import descendants
from seamark.services.images.images import Image
from seamark.services.runtimes.containers import INSIDE, PACKAGE
from seamark.services.supervisor import deployment as servers
from seamark.storage.documents import read_json

pytestmark = [pytest.mark.services, pytest.mark.cluster]


@pytest.fixture
def bench(boxes: Boxed, tmp_path: Path) -> Iterator[Bench]:
    study = boxes.study_of("null")
    paths = replace(study.site.paths, scratch=str(tmp_path / "scratch"))
    site: Site = replace(study.site, telemetry_interval_s=0.1, paths=paths)
    (tmp_path / "envs").symlink_to(ROOT / "envs")
    bench = Bench(root=tmp_path, site=site, service=SERVICES["null"])
    yield bench
    for folder in bench.folders:
        servers.stop(folder)


@pytest.fixture(params=["null", *(pytest.param(name, marks=pytest.mark.sweep) for name in ("postgres", "triton"))])
def contained(bench: Bench, boxes: Boxed, request: pytest.FixtureRequest) -> tuple[Bench, Image]:
    """The bench with a shipped recipe, and the image that its server runs in."""
    image = boxes.image(request.param)
    return replace(bench, service=boxes.study().services[request.param]), image


def settings_of(bench: Bench) -> dict[str, object]:
    return {one.name: one.default for one in bench.service.settings if one.role == "deployment"}


@pytest.mark.covers("E-SVR06", "E-FR21", "E-FR05")
@pytest.mark.parametrize("victim", ["keeper_pid", pytest.param("server_pid", marks=pytest.mark.sweep)])
def test_no_process_of_a_contained_server_outlives_its_supervisor_or_its_container(
    contained: tuple[Bench, Image], victim: str
):
    bench, image = contained
    answer = bench.serve(image=image, **settings_of(bench))
    assert answer["status"] == "ok", answer
    assert answer["image"]["digest"] == image.digest
    below = descendants(answer["server_pid"])
    assert below, "the server was expected inside a container"
    kill(answer[victim])
    assert eventually(lambda: not servers.alive(bench.folder()), within_s=3.0)
    assert eventually(lambda: not any(map(runs, [answer["server_pid"], *below])), within_s=15.0)
    assert eventually(lambda: left_of(bench) == [])
    assert not bench.data().exists()


@pytest.mark.covers("E-MON02", "E-SEC")
def test_a_contained_server_is_watched_and_ends_by_its_own_signal(contained: tuple[Bench, Image]):
    bench, image = contained
    answer = bench.serve(image=image, **settings_of(bench))
    assert answer["status"] == "ok", answer
    inside = descendants(answer["server_pid"])
    for pid in inside:
        assert os.stat(f"/proc/{pid}").st_uid == os.getuid()  # noqa: PTH116
    assert eventually(lambda: {"host", "server"} <= sources(bench))
    assert max(rss_of(bench)) > 20e6, "the server itself, not only the engine before it"
    record = servers.teardown(bench.folder(), [])
    assert record.ended.returncode == 0
    assert record.ended.why == "teardown"
    assert left_of(bench) == []


def sources(bench: Bench) -> set[str]:
    with bench.folder().telemetry.open() as file:
        return {row["source"] for row in csv.DictReader(file)}


def rss_of(bench: Bench) -> list[float]:
    with bench.folder().telemetry.open() as file:
        return [float(row["value"]) for row in csv.DictReader(file) if row["name"] == "rss_bytes"]


@pytest.mark.covers("E-FR05", "E-MR05", "E-SEC")
def test_a_contained_server_sees_its_own_folder_and_nothing_else_and_cannot_write_the_image(
    bench: Bench, boxes: Boxed, tmp_path: Path
):
    image = boxes.image("null")
    secret = tmp_path / "secret"
    secret.write_text("1")
    (boxes.root / "bound").mkdir()
    look = f"ls {secret}; ls {boxes.root}/bound && echo bound; touch /opt/mine; touch '{{data}}/mine' && echo data"
    assert bench.service.server is not None
    server = replace(bench.service.server, setup=(("sh", "-c", f"({look}); true"),))
    asked = replace(bench, service=replace(bench.service, server=server))
    answer = asked.serve(image=image, binds=(f"{boxes.root}/bound",), **settings_of(bench))
    assert answer["status"] == "ok", answer
    log = asked.folder().server_log.read_text()
    assert f"cannot access '{secret}'" in log
    assert "cannot touch '/opt/mine': Read-only file system" in log
    assert "bound\n" in log
    assert "data\n" in log


@pytest.mark.sweep
@pytest.mark.covers("E-FR05", "E-FR24")
def test_a_part_runs_in_its_own_image_beside_the_server_in_its_own(bench: Bench, boxes: Boxed):
    image, other = boxes.image("null"), boxes.image("postgres")
    assert bench.service.server is not None
    look = "ls /opt/seamark/site-packages > {data}/$NAME && sleep 600"
    part = Part(
        name="store",
        command=("sh", "-c", "exit 1"),
        environment={"NAME": "store"},
        container=PartImage(image=str(other.path), licence="none", command=("sh", "-c", look)),
    )
    worker = Part(name="worker", command=("sh", "-c", look), environment={"NAME": "worker"})
    server = replace(bench.service.server, parts=(part, worker))
    asked = replace(bench, service=replace(bench.service, server=server))
    answer = asked.serve(image=image, part_images={"store": other}, **settings_of(bench))
    assert answer["status"] == "ok", answer
    assert eventually(lambda: all((asked.data() / name).is_file() for name in ("store", "worker")))
    assert "psycopg2" in (asked.data() / "store").read_text()
    assert "psycopg2" not in (asked.data() / "worker").read_text()
    assert answer["part_images"]["store"]["path"] == str(other.path)
    servers.stop(asked.folder())
    assert eventually(lambda: left_of(asked) == [])


@pytest.mark.covers("E-FR05")
def test_a_deployment_with_gpus_is_started_with_nv_and_one_without_is_not(bench: Bench, boxes: Boxed):
    image = boxes.image("null")
    for gpus in (0, 1):
        answer = bench.serve(image=image, gpus=gpus, **settings_of(bench))
        assert answer["status"] == "ok", answer
        assert ("--nv" in answer["command"]) == (gpus > 0)
        servers.stop(bench.folder())


@pytest.mark.covers("E-FR21")
def test_an_image_that_ends_at_once_is_reported_with_what_it_said(bench: Bench, boxes: Boxed):
    image = boxes.image("null")
    assert bench.service.server is not None
    server = replace(bench.service.server, command=("sh", "-c", "echo no such model >&2; exit 7"))
    answer = replace(bench, service=replace(bench.service, server=server)).serve(image=image, **settings_of(bench))
    assert answer["status"] == "failed"
    assert answer["category"] == "server_never_healthy"
    assert "no such model" in "\n".join(answer["log_tail"])


@pytest.mark.covers("E1", "E-FR08", "E-FR25", "E-AC05")
def test_a_run_has_servers_and_workers_in_images_and_names_them(boxes: Boxed, tmp_path: Path):
    boxes.site(client=True)
    path = boxes.root / "config" / "sites" / "boxes.yaml"
    path.write_text(path.read_text().replace("environments: ", f"environments: {tmp_path / 'none'} # "))
    boxes.scenario("postgres", "null")
    boxes.bench("prepare", "-c", "boxed.yaml", "--site", "boxes", code=0)
    boxes.bench("submit", "-c", "boxed.yaml", "--site", "boxes", code=0)
    assert not (tmp_path / "none").exists(), "the libraries of clients come from images only"
    metas = [read_json(path) for path in (boxes.root / "results" / "boxed").glob("*--*/meta.json")]
    assert len(metas) == 2
    for meta in metas:
        assert meta["container_digest"] == meta["container"]["digest"]
        assert meta["container_digest"].startswith("sha256:")
        assert Path(meta["client_container"]["path"]).is_file()
    assert left_in(boxes) == []


@pytest.mark.sweep
@pytest.mark.covers("E-FR05", "E-FR13")
def test_members_run_in_images_of_their_own_and_their_digests_are_in_the_identity(boxes: Boxed):
    """One party has the image that is built for its service, the other one a file that the scenario names."""
    built, own = boxes.image("null"), boxes.root / "own.sif"
    own.symlink_to(built.path)
    recipe = yaml.safe_load((boxes.root / "config/services/null.yaml").read_text())
    python, command = str(INSIDE / "env/bin/python"), recipe["server"]["command"]
    recipe["name"], recipe["container"] = (
        "foreign",
        {
            "image": "docker://127.0.0.1:1/never/asked:1",
            "command": [python, f"{PACKAGE}/platform/isolated_main.py", *command[2:]],
            "binds": [f"{PACKAGE}:{PACKAGE}:ro"],
        },
    )
    (boxes.root / "config/services/foreign.yaml").write_text(yaml.safe_dump(recipe))
    parties = {"plain": {"service": "null"}, "named": {"service": "foreign", "container": str(own)}}
    boxes.scenario(workloads=[{"parties": parties, "sets": "all"}])
    boxes.bench("prepare", "-c", "boxed.yaml", "--site", "boxes", code=0)
    boxes.bench("submit", "-c", "boxed.yaml", "--site", "boxes", code=0)
    [whole] = (boxes.root / "results" / "boxed").glob("*--*/load.json")
    assert read_json(whole)["server_identity"]["image_digests"] == {"plain.server": None, "named.server": None}
    paths = {}
    for path in (boxes.root / "results" / "boxed").glob("deployments/*/members/*/deployment.json"):
        paths[path.parent.name] = read_json(path)["image"]["path"]
    assert paths == {"plain": str(built.path), "named": str(own)}
    loads = [read_json(path) for path in whole.parent.glob("parties/*/load.json")]
    assert [load["status"] for load in loads] == ["ok", "ok"]
    assert left_in(boxes) == []


@pytest.mark.sweep
@pytest.mark.covers("E1", "E-NFR02")
def test_a_run_in_images_works_for_an_ordinary_user(boxes: Boxed):
    user = () if os.getuid() != 0 else ("unshare", "--map-user=65534", "--map-group=65534", "--")
    boxes.site(client=True)
    boxes.scenario("postgres")
    assert boxes.bench("prepare", "-c", "boxed.yaml", "--site", "boxes").returncode == 0
    boxes.bench("submit", "-c", "boxed.yaml", "--site", "boxes", before=user, code=0)
    assert left_in(boxes) == []


def left_in(boxes: Boxed) -> list[str]:
    """Return the processes that still name the study."""
    done = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if str(boxes.root) in line]
