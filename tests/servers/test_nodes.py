"""Which nodes of a deployment are the load's and which the server's, and how others are reached: without a Slurm."""

from pathlib import Path

import pytest
from server_bench import Bench

from seamark.errors import SiteError, UserError
from seamark.load.carriers.srun import step
from seamark.model.read import read_services
from seamark.model.service import Part, Server
from seamark.model.trial import Deployment
from seamark.servers.nodes import Node, Placement, node_addresses, nodes_here, own_name, placement_of

SERVICES = read_services(Path(__file__).parents[2] / "config" / "services")
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


def test_several_nodes_without_a_slurm_job_are_said_with_the_remedy() -> None:
    with pytest.raises(SiteError, match=r"SLURM_JOB_ID is not set.*set 'resources: {nodes: 1}'"):
        nodes_here(2, {})


def test_a_recipe_of_several_nodes_on_one_is_a_mistake_that_says_what_to_write(bench: Bench) -> None:
    service = bench.with_server(fewest_nodes=2).service
    with pytest.raises(
        UserError, match=r"needs 2 nodes at least, and the deployment has 1. Write 'resources: {nodes: 2}'"
    ):
        placement_of(bench.deployment(), service, "127.0.0.1")


def test_one_node_is_asked_of_no_slurm(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    placement = placement_of(bench.deployment(), bench.service, "10.0.0.9")
    assert [node.host for node in placement.server] == ["10.0.0.9"]
    assert placement.load == placement.server
    assert placement.far == ()


def test_a_step_is_kept_to_its_nodes_and_shares_what_others_have() -> None:
    words = step("7", 2, ("n2", "n3"), ("true",))
    assert words[:2] == ["srun", "--jobid=7"]
    assert {"--overlap", "--nodes=2", "--nodelist=n2,n3", "--ntasks=2", "--cpu-bind=none", "--mem=0"} <= set(words)
    assert words[-1] == "true"
    assert not any(word.startswith("--nodelist") for word in step("7", 2, (), ("true",)))


def test_gpus_are_those_of_the_servers_nodes_together(bench: Bench) -> None:
    def each(nodes: int, gpus: int, server: Server) -> int:
        deployment = Deployment(
            id="d", service="tiny", settings={}, nodes=nodes, gpus=gpus, cpus_per_task=1, mem_gb=1
        )
        return bench.order(deployment=deployment, service=bench.with_service(server=server).service).gpus_per_node

    assert each(1, 4, Server(command=("x",))) == 4
    assert each(2, 4, Server(command=("x",))) == 4
    assert each(2, 8, Server(command=("x",), parts=(WORKER,), load_nodes="shared")) == 4


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
