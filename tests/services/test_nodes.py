"""Which nodes of a deployment are the load's and which the server's, and how others are reached: without a Slurm."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from server_bench import Bench
from shipped import SERVICES

from seamark.dispatch.dispatcher import dispatcher_here
from seamark.dispatch.job import Node
from seamark.dispatch.slurm.allocation import node_addresses, own_name, step
from seamark.errors import SiteError, UserError
from seamark.model.service import Part, Server
from seamark.model.trial import Deployment
from seamark.planning.study import Study
from seamark.services.images.images import Image
from seamark.services.runtimes.runtimes import launch_of
from seamark.services.supervisor.launch_spec import LaunchSpec, ProcessSlot
from seamark.services.supervisor.process_group import (
    Placement,
    placement_of,
)

WORKER, HEAD = Part(name="worker", command=("w",), nodes="each"), Part(name="head", command=("h",))


@pytest.mark.parametrize(
    ("server", "count", "its_own"),
    [
        (Server(command=("x",)), 1, [0]),
        (Server(command=("x",)), 2, [1]),
        (Server(command=("x",)), 4, [3]),
        (Server(command=("x",), parts=(HEAD,)), 3, [2]),
        (Server(command=("x",), parts=(HEAD, WORKER)), 3, [1, 2]),
        (Server(command=("x",), parts=(HEAD, WORKER), load_nodes="shared"), 3, [0, 1, 2]),
        (Server(command=("x",), parts=(WORKER,)), 1, [0]),
    ],
)
@pytest.mark.covers("E-FR04", "E-FR24")
def test_the_first_nodes_are_the_loads_unless_the_server_wants_them_all(
    server: Server, count: int, its_own: list[int]
) -> None:
    assert list(server.nodes_of(count)) == its_own


def test_a_part_is_on_the_servers_node_on_the_others_or_on_each() -> None:
    nodes = tuple(Node(name=name, host=name, here=False) for name in ("n1", "n2", "n3"))
    placement = Placement(load=nodes[:1], server=nodes[1:])
    on = {
        where: [node.name for node in placement.of(Part(name="p", command=("p",), nodes=where))]
        for where in ("server", "others", "each")
    }
    assert on == {"server": ["n2"], "others": ["n3"], "each": ["n2", "n3"]}


def test_the_address_of_a_node_is_what_slurm_says_not_its_name() -> None:
    told = (
        "NodeName=n1 Arch=x86_64 NodeAddr=10.3.0.1 NodeHostName=host1 OS=Linux 6.1 #1 SMP\n"
        "NodeName=n2 NodeAddr=n2-ib NodeHostName=n2\n"
        "NodeName=n3 State=DOWN\n"
    )
    assert node_addresses(told) == {"n1": "10.3.0.1", "n2": "n2-ib", "n3": "n3"}


def test_our_own_node_is_known_by_slurms_name_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "n2")
    assert own_name(["n1", "n2"]) == "n2"
    assert own_name(["n1", "n3"]) is None


def test_several_nodes_without_a_slurm_job_are_said_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(SiteError, match=r"this process runs in none.*set 'resources: {nodes: 1}'"):
        dispatcher_here().nodes(2)


@pytest.mark.covers("E-VAL", "E-FR04")
def test_several_nodes_on_a_site_of_one_are_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    scenario = tmp_path / "config" / "scenarios" / "apart.yaml"
    scenario.parent.mkdir(parents=True)
    scenario.write_text("scenario: apart\nresources: {nodes: 2}\nworkload: {service: 'null'}\n")
    study = Study.at(tmp_path, scenario=str(scenario))
    with pytest.raises(SiteError, match="2 nodes are requested, and site 'local' has one") as refused:
        study.require_nodes()
    assert refused.value.exit_code == 3
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    study.require_nodes()


@pytest.mark.parametrize(
    ("needs", "says"),
    [
        ({"fewest_nodes": 2}, "needs 2 nodes at least, and the deployment has 1. Write 'resources: {nodes: 2}'"),
        ({"fewest_gpus": 1}, "needs 1 GPU at least, and the deployment has 0. Write 'resources: {gpus: 1}'"),
    ],
)
def test_a_recipe_that_needs_more_nodes_or_gpus_is_a_mistake_that_says_what_to_write(
    bench: Bench, needs: dict[str, int], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        placement_of(bench.deployment(), bench.with_server(**needs).service, "127.0.0.1")


def test_one_node_is_asked_of_no_slurm(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    placement = placement_of(bench.deployment(), bench.service, "10.0.0.9")
    assert [node.host for node in placement.server] == ["10.0.0.9"]
    assert placement.load == placement.server
    assert placement.remote == ()


def test_a_step_is_kept_to_its_nodes_and_shares_what_others_have() -> None:
    words = step("7", 2, ("n2", "n3"), ("true",))
    assert words[:2] == ["srun", "--jobid=7"]
    assert {"--overlap", "--nodes=2", "--nodelist=n2,n3", "--ntasks=2", "--cpu-bind=none", "--mem=0"} <= set(words)
    assert words[-1] == "true"
    assert not any(word.startswith("--nodelist") for word in step("7", 2, (), ("true",)))


@pytest.mark.parametrize(
    ("whose", "nodes", "gpus", "seen"),
    [("own", 1, 4, "0,1,2,3"), ("own", 2, 4, "0,1,2,3"), ("shared", 2, 4, "0,1"), ("shared", 2, 0, "")],
)
def test_a_node_of_the_server_shows_its_share_of_the_deployments_gpus(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, whose: str, nodes: int, gpus: int, seen: str
) -> None:
    bench = bench.with_server(load_nodes=whose)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    deployment = Deployment(id="d", service="t", settings={}, nodes=nodes, gpus=gpus, cpus_per_task=1, mem_gb=1)
    spec, slot = bench.spec(deployment=deployment), ProcessSlot(node="n1", host="127.0.0.1", ports={"main": 1})
    launch = launch_of(spec, slot)
    assert launch.environment["CUDA_VISIBLE_DEVICES"] == seen


@pytest.mark.slow
@pytest.mark.covers("E-FR24")
def test_parts_of_a_server_on_one_node_need_no_slurm(bench: Bench) -> None:
    assert bench.service.server is not None
    worker = Part(
        name="worker", command=("sh", "-c", "echo {nodes} {addresses[worker]} {ports[main]}; sleep 60"), nodes="each"
    )
    bench = bench.with_server(parts=(worker,))
    endpoint = bench.serve()
    assert endpoint["status"] == "ok"
    (part,) = endpoint["parts"]
    log = bench.folder().part_log("worker", part["node"])
    assert log.read_text() == f"1 127.0.0.1 {endpoint['ports']['main']}\n"
    assert endpoint["load_nodes"] is None


@pytest.mark.slow
@pytest.mark.covers("D3")
def test_copies_of_a_part_have_ports_and_numbers_of_their_own_and_the_server_has_all_addresses(bench: Bench) -> None:
    assert bench.service.server is not None
    copy = Part(
        name="copy",
        command=("sh", "-c", "echo $0 $1; sleep 60", "{number}", "{ports[copy]}"),
        ports=("copy",),
        count="delay_ms",
    )
    command = ("sh", "-c", 'echo "$@" > urls; shift 3; exec "$@"', "x", "{urls[copy]}", *bench.service.server.command)
    bench = bench.with_server(parts=(copy,), command=command)
    endpoint = bench.serve(delay_ms=3)
    assert endpoint["status"] == "ok", endpoint
    ports = {part["name"]: part["ports"]["copy"] for part in endpoint["parts"]}
    assert [*ports] == ["copy-1", "copy-2", "copy-3"]
    assert len({*ports.values()}) == 3
    for number, (name, port) in enumerate(ports.items(), 1):
        assert bench.folder().part_log(name, endpoint["node"]).read_text() == f"{number} {port}\n"
    written = (Path(endpoint["data"]) / "urls").read_text().split()
    assert written[:3] == [f"http://127.0.0.1:{port}" for port in ports.values()]


@pytest.fixture
def spread(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> LaunchSpec:
    """What a supervisor is told of vLLM over two nodes, at a site of containers with a network of its own."""
    engine, image = bench.root / "apptainer", bench.root / "vllm.sif"
    for file in (engine, image):
        file.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(bench.root), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    service = SERVICES["vllm_ray"]
    deployment = Deployment(
        id="d",
        service=service.name,
        settings={setting.name: setting.default for setting in service.settings} | {"tensor_parallel": 4},
        nodes=2,
        gpus=8,
        cpus_per_task=1,
        mem_gb=1,
    )
    site = bench.with_site(runtime="apptainer", network_environment={"NCCL_SOCKET_IFNAME": "ib0"}).site
    file = Image(name="vllm", origin="file", source=str(image), digest=None, licence="none", path=image)
    return bench.spec(deployment=deployment, service=service, site=site, image=file)


@pytest.mark.covers("E-FR04", "E-FR24", "E-MR07", "E-MLX05")
@pytest.mark.parametrize("runtime", ["apptainer", "venv"])
def test_vllm_over_two_nodes_joins_one_ray_and_every_process_gets_the_network(
    bench: Bench, spread: LaunchSpec, runtime: str
) -> None:
    spec = replace(spread, site=replace(spread.site, runtime=runtime))
    server = spec.service.server
    assert server is not None
    addresses = {"server": "10.3.0.1", "worker": "10.3.0.2"}
    ports = {"http": 8000, "ray": 8001}
    head = ProcessSlot(node="n1", host="10.3.0.1", ports=ports, nodes=2, addresses=addresses)
    worker = replace(head, node="n2", host="10.3.0.2")
    launches = [launch_of(spec, slot, part) for slot, part in ((head, None), (worker, server.part("worker")))]
    for launch in launches:
        shown = launch.environment.get if runtime == "venv" else _given(launch.command).get
        network = {name: shown(name) for name in ("NCCL_DEBUG", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME")}
        assert network == {"NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "mlx5", "NCCL_SOCKET_IFNAME": "ib0"}
    started, serving = _printed_by(launches[0].command, ("ray", "vllm"), bench.root)
    assert started.startswith("ray start --head --node-ip-address=10.3.0.1 --port=8001 ")
    assert serving.startswith("vllm serve ")
    assert "--tensor-parallel-size=4 --pipeline-parallel-size=2" in serving
    reached, joined = _printed_by(launches[1].command, ("ray",), bench.root)
    assert reached == "ray health-check --address=10.3.0.1:8001"
    assert joined.startswith("ray start --block --address=10.3.0.1:8001 --node-ip-address=10.3.0.2")
    if runtime == "apptainer":
        assert _given(launches[0].command)["RAY_ADDRESS"] == "10.3.0.1:8001"
        assert "APPTAINERENV_CUDA_VISIBLE_DEVICES=0,1,2,3" in launches[1].command


def _printed_by(command: Sequence[str], programs: Sequence[str], root: Path) -> list[str]:
    """Return how the shell of a command, in its image or without one, calls programs: a line for each call."""
    for name in programs:
        program = root / "programs" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text('#!/bin/sh\necho "${0##*/}" "$@"\n')
        program.chmod(0o755)
    words = command[command.index("sh") :]
    path = f"{root / 'programs'}:{os.environ['PATH']}"
    done = subprocess.run(words, env={"PATH": path}, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.fixture
def cluster(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> LaunchSpec:
    """What a supervisor is told of a Milvus cluster over three nodes, at a site of containers."""
    monkeypatch.setenv("PATH", str(bench.root), prepend=":")
    service = SERVICES["milvus_cluster"]
    assert service.server is not None
    images = {}
    for name in ("apptainer", "milvus.sif", *(f"{part.name}.sif" for part in service.server.parts if part.container)):
        path = bench.root / name
        path.touch(mode=0o755)
        images[name] = Image(name=name, origin="file", source="", digest=None, licence="none", path=path)
    settings = {setting.name: setting.default for setting in service.settings}
    deployment = Deployment(
        id="d", service=service.name, settings=settings, nodes=3, gpus=0, cpus_per_task=1, mem_gb=1
    )
    return replace(
        bench.spec(deployment=deployment, service=service, image=images["milvus.sif"]),
        site=bench.with_site(runtime="apptainer").site,
        part_images={name.removesuffix(".sif"): image for name, image in images.items()},
    )


@pytest.mark.covers("E-FR24", "E-MLX05")
@pytest.mark.parametrize("runtime", ["apptainer", "venv"])
def test_the_components_of_a_milvus_cluster_find_each_other_and_each_runs_in_its_own_image(
    bench: Bench, cluster: LaunchSpec, runtime: str
) -> None:
    spec = replace(cluster, site=replace(cluster.site, runtime=runtime))
    server = spec.service.server
    assert server is not None
    head, other = Node(name="n2", host="10.3.0.2", here=False), Node(name="n3", host="10.3.0.3", here=False)
    placement = Placement(load=(), server=(head, other))
    names = [*server.ports, *(port for part in server.parts for port in part.ports)]
    ports = {name: 20000 + number for number, name in enumerate(names)}
    addresses = {"server": head.host, **{part.name: placement.of(part)[0].host for part in server.parts}}
    launches = {}
    for part in (None, *server.parts):
        (node,) = placement.of(part) if part else (head,)
        slot = ProcessSlot(node=node.name, host=node.host, ports=ports, nodes=2, addresses=addresses)
        launch = launch_of(spec, slot, part)
        shown = _given(launch.command) if runtime == "apptainer" else dict(launch.environment)
        launches[part.name if part else "proxy"] = (" ".join(launch.command), shown)
    roles = {"coordinators": "mixture", "query_node": "querynode", "data_node": "datanode", "index_node": "indexnode"}
    for name, role in {"proxy": "proxy", **roles}.items():
        command, given = launches[name]
        assert f"milvus run {role}" in command
        assert given["ETCD_ENDPOINTS"] == f"10.3.0.2:{ports['etcd']}"
        assert given["KAFKA_BROKERLIST"] == f"10.3.0.2:{ports['kafka']}"
        assert (given["MINIO_ADDRESS"], given["MINIO_PORT"]) == ("10.3.0.2", str(ports["minio"]))
        assert given["ROOTCOORD_PORT"] == str(ports["root"])
        assert given["ETCD_USE_EMBED"] == "false"
        own = "metrics" if name == "proxy" else f"{name}_metrics"
        assert given["METRICS_PORT"] == str(ports[own])
        assert ("milvus.sif" in command) == (runtime == "apptainer")
    assert launches["query_node"][1]["QUERYNODE_PORT"] == str(ports["query_node"])
    assert launches["query_node"][1]["QUERYNODE_IP"] == "10.3.0.3"
    for name in ("etcd", "minio", "kafka"):
        command, given = launches[name]
        assert f"10.3.0.2:{ports[name]}" in command
        assert (f"{bench.root}/{name}.sif" in command) == (runtime == "apptainer")
        assert runtime == "venv" or "ETCD_ENDPOINTS" not in given, "Milvus's variables are not theirs"


@pytest.mark.covers("E-VAL", "E-FR24")
def test_the_secret_of_the_store_is_made_for_the_run_and_stands_in_no_command(
    bench: Bench, cluster: LaunchSpec
) -> None:
    server = cluster.service.server
    assert server is not None
    minio = server.part("minio")
    assert minio is not None
    ports = {"minio": 1, "minio_console": 2}
    words = [word.format(data=bench.root, host="h", ports=ports) for word in minio.command]
    words[words.index("minio")] = "echo"
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    secret = bench.root / "secret"
    assert len(secret.read_text()) == 48
    assert secret.stat().st_mode & 0o077 == 0
    assert secret.read_text() not in done.stdout


def _given(command: tuple[str, ...]) -> dict[str, str]:
    """Return the variables that a container is given on its command line."""
    return dict(value.split("=", 1) for option, value in pairwise(command) if option == "--env")
