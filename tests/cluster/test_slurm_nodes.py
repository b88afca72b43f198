"""Servers on other nodes than their loads, and over several nodes, on a real Slurm of two."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from processes import eventually
from server_bench import HERE, Bench, kill, left_of, runs
from shipped import SERVICES
from slurm import allocation, slurm, why_no_slurm
from slurm_study import SlurmStudy

from seamark.load.coordinator.command_launcher import launcher_of
from seamark.load.coordinator.coordinator import run_load
from seamark.load.workers.assignment import LoadJob
from seamark.model.service import Health, Part, Server
from seamark.model.site import Paths, Pinning, Site
from seamark.services.supervisor import deployment as servers
from seamark.storage.codec import encode

ROOT = Path(__file__).parents[2]
TINY = ("{python}", str(HERE / "tiny_server.py"))
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    if reason := why_no_slurm():
        pytest.skip(reason)
    with slurm(tmp_path_factory.mktemp("slurm"), nodes=2, cpus=2) as told:
        yield told


@pytest.fixture(scope="module")
def number(cluster: dict[str, str]) -> Iterator[str]:
    with allocation(cluster, nodes=2, tasks=4) as number:
        yield number


@pytest.fixture
def on_n1(cluster: dict[str, str], number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a process of the job on its first node."""
    for name in ("SLURM_CONF", "PATH", "LD_LIBRARY_PATH"):
        if name in cluster:
            monkeypatch.setenv(name, cluster[name])
    monkeypatch.setenv("SLURM_JOB_ID", number)
    monkeypatch.setenv("SLURMD_NODENAME", "n1")


@pytest.fixture
def bench(tmp_path: Path, on_n1: None) -> Iterator["Nodes"]:
    bench = Nodes(
        root=tmp_path,
        site=Site(
            name="here",
            summary="",
            lease_s=30.0,
            telemetry_interval_s=0.1,
            paths=Paths(scratch=str(tmp_path / "scratch"), environments=str(tmp_path / "environments")),
        ),
        service=SERVICES["null"],
    )
    yield bench
    for folder in bench.folders:
        servers.stop(folder)


class Nodes(Bench):
    """A bench whose deployments have two nodes."""

    def serve_over(self, nodes: int = 2, **settings: Any) -> dict[str, Any]:
        """Serve the bench's service over so many nodes; settings are the recipe's own but for those given."""
        own = {setting.name: setting.default for setting in self.service.settings}
        deployment = replace(self.deployment(**(own | settings)), service=self.service.name, nodes=nodes)
        self.folders.append(self.folder())
        endpoint = servers.serve(self.spec(deployment=deployment), ROOT / "envs")
        return dict(encode(endpoint))

    def job(self, endpoint: dict[str, Any], **settings: Any) -> LoadJob:
        defaults = {"pattern": "closed", "concurrency": 4, "duration_s": 0.5, "warmup_s": 0.0, "timeout_s": 5.0}
        return LoadJob(
            driver=self.service.driver,
            workers=self.service.workers,
            settings={setting.name: setting.default for setting in self.service.settings} | defaults | settings,
            seed=3,
            data=Path(endpoint["data"]),
            host=endpoint["host"],
            ports=endpoint["ports"],
        )


def node_of(pid: int) -> str | None:
    """Return the node of Slurm that a process runs on, as its environment says."""
    return psutil.Process(pid).environ().get("SLURMD_NODENAME")


@pytest.mark.covers("E-FR04")
def test_a_service_of_one_process_runs_on_the_other_node_and_its_telemetry_tells_both_apart(bench: Nodes) -> None:
    endpoint = bench.serve_over()
    assert (endpoint["status"], endpoint["reason"]) == ("ok", None)
    assert (endpoint["load_nodes"], endpoint["server_nodes"]) == (["n1"], ["n2"])
    assert (node_of(endpoint["server_pid"]), node_of(endpoint["keeper_pid"])) == ("n2", "n1")
    outcome = run_load(bench.job(endpoint), None, bench.root / "parts")
    assert outcome.completed > 50
    servers.stop(bench.folder())
    rows = [line.split(",") for line in bench.folder().telemetry.read_text().splitlines()[1:]]
    seen = {(row[1], row[2]) for row in rows}
    assert {("host", "cpu_ratio"), ("host@n1", "cpu_ratio"), ("server", "rss_bytes")} <= seen
    assert ("server", "net_sent_bytes") in seen
    assert eventually(lambda: left_of(bench) == [])


@pytest.mark.sweep
def test_a_server_on_another_node_keeps_to_the_cpus_that_the_site_names_there(bench: Nodes) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    bench = bench.with_site(pinning=Pinning(client=str(cpus[0]), server=str(cpus[-1])))
    endpoint = bench.serve_over()
    assert os.sched_getaffinity(endpoint["server_pid"]) == {cpus[-1]}
    assert os.sched_getaffinity(endpoint["keeper_pid"]) == set(cpus)
    assert endpoint["pinning"] == {
        "client": [cpus[0]],
        "server": [],
        "why": f"as the site says; the server's are {cpus[-1]} of its own nodes",
    }
    servers.stop(bench.folder())
    refused = bench.with_site(pinning=Pinning(server="4095")).serve_over()
    assert "CPU 4095 cannot be used here" in refused["reason"]


@pytest.fixture
def in_parts(bench: Nodes, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    """A bench of a server with a part on its own node, and another on each of its nodes."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))  # where the hooks of tiny_driver.py are found
    server = Server(
        command=(*TINY, "{ports[main]}", "--host", "{host}"),
        health=Health(probe="http", timeout_s=20.0),
        parts=(
            Part(
                name="head",
                command=(*TINY, "{ports[head]}", "--host", "{addresses[head]}"),
                ports=("head",),
                health=Health(probe="http", port="head", timeout_s=20.0),
            ),
            Part(
                name="worker",
                command=("sh", "-c", "echo $RANKS of {node} joins {addresses[head]}:{ports[head]}; exec sleep 600"),
                nodes="each",
                environment={"RANKS": "{nodes}"},
            ),
        ),
        load_nodes="shared",
        fewest_nodes=2,
        network_environment={"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "ib0"},
        stop_timeout_s=5.0,
    )
    return bench.with_service(
        name="tiny", driver="tiny_driver", settings=(), environment=None, server=server, container=None
    ).with_site(network_environment={"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_HCA": "mlx5_0"})


def parts_of(endpoint: dict[str, Any]) -> dict[tuple[str, str], int]:
    return {(part["name"], part["node"]): part["pid"] for part in endpoint["parts"]}


@pytest.mark.covers("E-FR04", "E-FR24", "E-MR07", "E-SVR02")
def test_parts_start_in_order_each_on_its_nodes_with_the_sites_network_above_the_recipes(in_parts: Nodes) -> None:
    endpoint = in_parts.serve_over()
    assert (endpoint["status"], endpoint["reason"]) == ("ok", None)
    parts = parts_of(endpoint)
    assert list(parts) == [("head", "n1"), ("worker", "n1"), ("worker", "n2")]
    for (_, node), pid in parts.items():
        found = psutil.Process(pid).environ()
        assert found["SLURMD_NODENAME"] == node
        network = {name: value for name, value in found.items() if name.startswith("NCCL_")}
        assert network == {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_HCA": "mlx5_0"}
    head = endpoint["parts"][0]["ports"]["head"]
    for node in ("n1", "n2"):
        assert in_parts.folder().part_log("worker", node).read_text() == f"2 of {node} joins 127.0.0.1:{head}\n"
    assert psutil.Process(parts["head", "n1"]).create_time() <= psutil.Process(endpoint["server_pid"]).create_time()
    assert endpoint["load_nodes"] == endpoint["server_nodes"] == ["n1", "n2"]
    assert servers.stop(in_parts.folder())
    assert left_of(in_parts) == []
    sources = {line.split(",")[1] for line in in_parts.folder().telemetry.read_text().splitlines()[1:]}
    assert {"host", "server", "head", "worker", "host@n2", "worker@n2"} <= sources


@pytest.mark.covers("E-NFR04")
@pytest.mark.parametrize("with_guard", [pytest.param(False, marks=pytest.mark.sweep), True])
def test_after_kill_9_of_the_supervisor_or_of_its_guard_too_nothing_is_left_on_either_node(
    in_parts: Nodes, with_guard: bool
) -> None:
    endpoint = in_parts.serve_over()
    assert endpoint["status"] == "ok"
    supervisor = psutil.Process(endpoint["keeper_pid"])
    guard = supervisor.parent()
    assert guard is not None
    if with_guard:
        guard.kill()
    supervisor.kill()
    pids = [endpoint["server_pid"], *parts_of(endpoint).values()]
    assert eventually(lambda: not any(map(runs, pids)), within_s=10.0)
    if with_guard:
        servers.sweep(in_parts.results)
    assert eventually(lambda: left_of(in_parts) == [], within_s=10.0)


@pytest.mark.covers("E-NFR04")
def test_the_death_of_a_part_on_another_node_ends_the_server_and_is_recorded_with_its_last_lines(
    in_parts: Nodes,
) -> None:
    endpoint = in_parts.serve_over()
    kill(parts_of(endpoint)["worker", "n2"])
    assert eventually(lambda: not servers.alive(in_parts.folder()), within_s=3.0)
    ended = servers.why_ended(in_parts.folder())
    assert ended is not None
    assert (ended.why, ended.reason) == ("crash", "The part 'worker' of the server on n2 ended with SIGKILL.")
    assert "2 of n2 joins" in ended.log_tail[0]
    assert eventually(lambda: left_of(in_parts) == [])


@pytest.mark.sweep
def test_the_loss_of_a_node_ends_the_server_and_is_recorded(in_parts: Nodes) -> None:
    endpoint = in_parts.serve_over()
    agent = psutil.Process(parts_of(endpoint)["worker", "n2"]).parent()
    assert agent is not None
    assert "seamark.services.supervisor.agent" in agent.cmdline()
    agent.kill()
    assert eventually(lambda: not servers.alive(in_parts.folder()), within_s=3.0)
    ended = servers.why_ended(in_parts.folder())
    assert ended is not None
    assert (ended.why, ended.reason) == ("crash", "The node n2 was lost: its agent closed the connection.")
    assert eventually(lambda: left_of(in_parts) == [])


@pytest.mark.sweep
def test_a_part_that_ends_while_it_starts_fails_the_deployment(in_parts: Nodes) -> None:
    assert in_parts.service.server is not None
    worker = Part(name="worker", command=("sh", "-c", "echo no {node}; exit 3"), nodes="others")
    late = Part(name="late", command=("sleep", "600"), health=Health(probe="tcp", port="late"), ports=("late",))
    server = replace(in_parts.service.server, parts=(worker, late))
    endpoint = in_parts.with_service(server=server).serve_over()
    assert (endpoint["status"], endpoint["category"]) == ("failed", "server_never_healthy")
    assert "The part 'worker' of the server on n2 ended with exit code 3." in endpoint["reason"]
    assert endpoint["log_tail"] == ["no n2"]
    assert eventually(lambda: left_of(in_parts) == [])


@pytest.mark.covers("E-FR04", "E-FR25")
def test_clients_on_both_nodes_send_one_schedule_to_a_server_on_one(bench: Nodes) -> None:
    assert bench.service.server is not None
    bench = bench.with_service(server=replace(bench.service.server, load_nodes="shared"))
    endpoint = bench.serve_over()
    assert endpoint["status"] == "ok"
    assert node_of(endpoint["server_pid"]) == "n1"
    job = bench.job(endpoint, pattern="poisson", rate_rps=300.0, duration_s=1.0, shards=4)
    outcome = run_load(job, None, bench.root / "parts", launcher=launcher_of("srun", nodes=endpoint["load_nodes"]))
    assert sorted(report.host for report in outcome.reports) == ["n1", "n1", "n2", "n2"]
    assert outcome.sent == outcome.completed > 200


@pytest.mark.sweep
def test_clients_keep_off_a_server_that_has_a_node_of_its_own(bench: Nodes) -> None:
    endpoint = bench.serve_over()
    job = bench.job(endpoint, shards=2)
    outcome = run_load(job, None, bench.root / "parts", launcher=launcher_of("srun", nodes=endpoint["load_nodes"]))
    assert [report.host for report in outcome.reports] == ["n1", "n1"]
    assert node_of(endpoint["server_pid"]) == "n2"


@pytest.mark.sweep
@pytest.mark.covers("E-FR04", "E-FR17")
def test_postgresql_is_set_up_filled_and_measured_on_the_other_node(bench: Nodes) -> None:
    bench = bench.with_service(**vars(SERVICES["postgres"])).with_site(
        paths=replace(bench.site.paths, environments=Paths().environments)
    )
    endpoint = bench.serve_over(scale=1, durable=False)
    assert (endpoint["status"], endpoint["reason"]) == ("ok", None)
    assert endpoint["server_nodes"] == ["n2"]
    assert psutil.Process(endpoint["server_pid"]).parent() != psutil.Process(endpoint["keeper_pid"])
    python = Path(endpoint["environment"]) / "bin" / "python"
    outcome = run_load(bench.job(endpoint), python, bench.root / "parts")
    assert outcome.sent == outcome.completed > 20
    assert servers.stop(bench.folder())
    assert left_of(bench) == []


def test_several_nodes_without_a_job_are_a_mistake_that_is_said(
    bench: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "has 2 nodes (n1, n2), and the deployment needs 3" in bench.serve_over(nodes=3)["reason"]
    monkeypatch.setenv("SLURMD_NODENAME", "login")
    reason = bench.serve_over()["reason"]
    assert "none of those of job" in reason
    monkeypatch.delenv("SLURM_JOB_ID")
    assert "needs a batch job of as many" in bench.serve_over()["reason"]


@pytest.mark.sweep
@pytest.mark.covers("E-SVR02", "E-FR04", "E-NFR05")
def test_a_whole_run_over_two_nodes_has_its_server_on_one_and_its_loads_on_the_other(on_slurm: SlurmStudy) -> None:
    on_slurm.write_site(carrier="srun")
    workload = {"component": "null", "service": "null", "concurrency": 4, "shards": 2}
    workload |= {"duration_s": 0.5, "warmup_s": 0.2}
    on_slurm.write(partition="cpu", resources={"nodes": 2, "gpus": 0}, repetitions=1, workload=workload)
    on_slurm.measure(code=0)
    (job,) = on_slurm.jobs()
    assert (job["JobState"], job["NumNodes"]) == ("COMPLETED", "2")
    (deployment,) = (on_slurm.results / "deployments").iterdir()
    served = on_slurm.json(f"deployments/{deployment.name}/deployment.json")
    assert (served["load_nodes"], served["server_nodes"]) == (["n1"], ["n2"])
    (trial,) = on_slurm.trials()
    load = on_slurm.json(f"{trial.name}/load.json")
    assert load["status"] == "ok"
    assert [worker["host"] for worker in load["workers"]] == ["n1", "n1"]


@pytest.mark.sweep
def test_parties_have_their_servers_on_the_second_node_and_their_loads_on_the_first(on_slurm: SlurmStudy) -> None:
    parties = {"one": {"service": "null", "concurrency": 2}, "two": {"service": "known", "ttft_ms": 1}}
    workload = {"parties": parties, "sets": "all", "duration_s": 1.0, "warmup_s": 0.2}
    on_slurm.write(partition="cpu", resources={"nodes": 2, "gpus": 0}, repetitions=1)
    path = on_slurm.root / "config/scenarios/try.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"workload": workload}))
    on_slurm.measure(code=0)
    (job,) = on_slurm.jobs()
    assert (job["JobState"], job["NumNodes"]) == ("COMPLETED", "2")
    members = sorted(on_slurm.results.glob("deployments/*/members/*/deployment.json"))
    assert [path.parent.name for path in members] == ["one", "two"]
    for path in members:
        served = json.loads(path.read_text())
        assert (served["load_nodes"], served["server_nodes"], served["node"]) == (["n1"], ["n2"], "n1")
    loads = [json.loads(path.read_text()) for path in on_slurm.results.glob("*--*/parties/*/load.json")]
    assert [load["status"] for load in loads] == ["ok", "ok"]
    assert on_slurm.processes() == []
