"""A server with a place: cores, niceness, threads and GPUs of its processes, and what endpoint.json says of them."""

import os
from dataclasses import replace

import pytest
from processes import autogroup, environment_of, eventually
from server_bench import Bench

from seamark.dispatch.placement import Place
from seamark.model.results.deployment_record import DeploymentRecord
from seamark.model.site import Pinning
from seamark.services.supervisor import deployment as servers
from seamark.storage.documents import read

pytestmark = pytest.mark.services
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
CORES = sorted(os.sched_getaffinity(0))
FIRST, LAST = CORES[0], CORES[-1]


def test_a_placed_server_has_the_cores_niceness_threads_and_gpus_of_its_place(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MKL_NUM_THREADS", "64")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    place = Place(server_cores=(LAST,), load_cores=(FIRST,), threads=3, niceness=7, gpus=(2, 1))
    answer = bench.with_site(pinning=Pinning(server=str(FIRST), client=str(LAST))).serve(gpus=2, place=place)
    assert answer["status"] == "ok"
    pid = answer["server_pid"]
    assert os.sched_getaffinity(pid) == {LAST}
    assert os.getpriority(os.PRIO_PROCESS, pid) == autogroup(pid) == 7
    seen = environment_of(pid)
    assert {seen[name] for name in THREADS} == {"3"}
    assert (seen["CUDA_VISIBLE_DEVICES"], seen["CUDA_DEVICE_ORDER"]) == ("2,1", "PCI_BUS_ID")
    assert answer["pinning"] == {"client": [FIRST], "server": [LAST], "why": "placement"}
    assert (answer["niceness"], answer["threads"]) == (7, 3)


def test_the_supervisor_is_kept_to_the_cores_and_gpus_and_keeps_its_priority(bench: Bench):
    answer = bench.serve(place=Place(server_cores=(LAST,), niceness=7, threads=3, gpus=(5,)))
    keeper = answer["keeper_pid"]
    assert eventually(lambda: os.sched_getaffinity(keeper) == {LAST})
    assert os.getpriority(os.PRIO_PROCESS, keeper) == os.getpriority(os.PRIO_PROCESS, 0)
    assert environment_of(keeper)["CUDA_VISIBLE_DEVICES"] == "5", "its telemetry is of these"


def test_an_empty_place_leaves_a_server_on_all_cores_without_a_limit(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    answer = bench.with_site(pinning=Pinning(server=str(LAST))).serve(place=Place())
    assert os.sched_getaffinity(answer["server_pid"]) == set(CORES)
    seen = environment_of(answer["server_pid"])
    assert (seen["OMP_NUM_THREADS"], seen["CUDA_VISIBLE_DEVICES"]) == ("64", "")
    assert answer["pinning"] == {"client": [], "server": [], "why": "placement"}
    assert answer["niceness"] == 0
    assert "threads" not in answer


def test_a_server_without_a_place_has_none_in_its_record(bench: Bench):
    answer = bench.serve()
    assert not {"niceness", "threads"} & set(answer)
    assert os.getpriority(os.PRIO_PROCESS, answer["server_pid"]) == os.getpriority(os.PRIO_PROCESS, 0)
    assert "CUDA_DEVICE_ORDER" not in set(environment_of(answer["server_pid"])) - set(os.environ)


def test_the_place_is_in_the_record_of_a_server_that_has_ended(bench: Bench):
    bench.serve(place=Place(server_cores=(LAST,), threads=2, niceness=3))
    servers.teardown(bench.folder(), [])
    record = read(bench.folder().record, DeploymentRecord)
    assert (record.niceness, record.threads) == (3, 2)
    assert record.pinning is not None
    assert record.pinning.server == (LAST,)


def test_what_a_server_starts_in_a_session_of_its_own_has_its_niceness_too(bench: Bench):
    file = bench.root / "hidden"
    bench.with_server("--hidden-child", str(file)).serve(place=Place(niceness=7, server_cores=(FIRST,)))
    child = int(file.read_text())
    assert os.getsid(child) == child
    assert eventually(lambda: autogroup(child) == 7)
    assert os.getpriority(os.PRIO_PROCESS, child) == 7
    assert os.sched_getaffinity(child) == {FIRST}


@pytest.mark.parametrize(("niceness", "expected"), [(3, 10), (15, 15)])
def test_a_server_that_busy_waits_gives_way_at_least_as_it_does_alone(bench: Bench, niceness: int, expected: int):
    pid = bench.with_server(busy_waits=True).serve(place=Place(niceness=niceness))["server_pid"]
    assert autogroup(pid) == expected
    assert os.getpriority(os.PRIO_PROCESS, pid) == niceness


def test_a_variable_of_the_recipe_takes_precedence_over_the_place(bench: Bench):
    answer = bench.with_server(environment={"OMP_NUM_THREADS": "5"}).serve(place=Place(threads=2))
    seen = environment_of(answer["server_pid"])
    assert [seen[name] for name in THREADS] == ["5", "2", "2"]


def test_a_service_in_the_client_has_no_server_cores_and_its_supervisor_keeps_to_those_of_the_load(bench: Bench):
    alone = bench.with_service(server=None, driver="seamark.drivers.null:Null")
    answer = alone.serve(place=Place(load_cores=(LAST,), threads=1))
    assert answer["status"] == "ok", answer
    assert answer["pinning"] == {"client": [LAST], "server": [], "why": "placement"}
    assert eventually(lambda: os.sched_getaffinity(answer["keeper_pid"]) == {LAST})


@pytest.mark.parametrize(
    ("place", "party"), [(Place(server_cores=(60000,)), "server"), (Place(load_cores=(60000,)), "load")]
)
def test_a_core_that_is_not_there_fails_the_set_up(bench: Bench, place: Place, party: str):
    answer = bench.serve(place=place)
    assert (answer["status"], answer["category"]) == ("failed", "setup_failed")
    assert f"the placement gives the {party} CPU 60000, which cannot be used here" in answer["reason"]


def test_a_place_on_several_nodes_is_refused(bench: Bench):
    answer = bench.serve(place=Place(niceness=1), nodes=2)
    assert (answer["status"], answer["category"]) == ("failed", "setup_failed")
    assert "a placement is for one machine, and the deployment has 2 nodes" in answer["reason"]


def test_two_placed_servers_run_side_by_side(bench: Bench):
    pids = []
    for number, cpu in enumerate((FIRST, LAST)):
        name = f"tiny-{number}"
        bench.folders.append(bench.folder(name))
        place = Place(server_cores=(cpu,), niceness=number * 10)
        spec = bench.spec(name, site=replace(bench.site, telemetry_interval_s=0.5), place=place)
        endpoint = servers.serve(spec, bench.root / "envs", evict=False)
        assert endpoint.server_pid is not None
        pids.append(endpoint.server_pid)
    assert [os.sched_getaffinity(pid) for pid in pids] == [{FIRST}, {LAST}]
    assert [os.getpriority(os.PRIO_PROCESS, pid) for pid in pids] == [0, 10]


def test_the_lease_of_a_member_is_renewed_while_another_one_starts_for_longer(bench: Bench):
    for name, flags in (("a", ()), ("b", ("--delay-s", "4"))):
        folder = bench.folder("co").member(name)
        bench.folders.append(folder)
        member = bench.with_site(lease_s=2.0).with_server(*flags)
        spec = member.spec("co", folder=folder, deployment=member.deployment(f"co@{name}"))
        assert servers.serve(spec, bench.root / "envs", evict=False).ok
    assert servers.alive(bench.folder("co").member("a"))
