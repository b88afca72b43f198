"""Conservative backfill keeps the reservations that it gave, also with models to fetch and unlike GPUs."""

import random

import pytest
from small_clusters import KIND, machine, model, work_of

from seamark_simulate.simulation.host_cluster import HostCluster
from seamark_simulate.simulation.machine import Change, GpuKind, Host, Layout, Machine
from seamark_simulate.simulation.policies import backfill
from seamark_simulate.simulation.virtual_world import run_policy


def cluster_of(kind, rng):
    gpus = rng.randint(3, 8)
    if kind == "several models":
        return machine(gpus, several_models=True)
    if kind == "unlike GPUs":
        slow = GpuKind(name="slow", memory_gb=24.0, speed=0.4)
        hosts = Host(name="a", kind=KIND, gpus=3), Host(name="b", kind=slow, gpus=gpus)
        return Machine(gpus=3 + gpus, layout=Layout(hosts=hosts, several_models=rng.random() < 0.5))
    return Machine(gpus=gpus)


def work_for(kind, rng, right=True, shortest_s=1):
    """Return the work of 40 requests of models for one to three GPUs; with `right` estimates are the times."""
    fetched = kind != "free models"
    models = [model(f"m{gpus}", gpus=gpus) for gpus in (1, 2, 3)]
    if fetched:
        sizes = [(rng.choice((4.0, 12.0, 20.0)), rng.choice((1, 1, 2, 3)), rng.choice((0.0, 2.0))) for _ in range(5)]
        models = [model(f"m{i}", gb, gpus, load_s, fetched=True) for i, (gb, gpus, load_s) in enumerate(sizes)]
    at_s, requests = 0.0, []
    for _ in range(40):
        at_s += rng.choice((0, 0, 1, 2, 5))
        time_s = rng.randint(shortest_s, 20) * (rng.random() if fetched else 1.0)
        settings = {} if right else {"node_estimates_s": {"n": time_s * rng.choice((0.2, 1.0, 3.0))}}
        requests.append((at_s, {"n": (rng.choice(models).id, time_s)}, settings))
    return work_of(*requests, models=models)


@pytest.fixture
def promised(monkeypatch):
    """The time of the first reservation of each node, as it is made."""
    found, earliest = {}, backfill.Held.earliest

    def recorded(held, view, node, *more):
        begin_s, place = earliest(held, view, node, *more)
        found.setdefault(node, begin_s)
        return begin_s, place

    monkeypatch.setattr(backfill.Held, "earliest", recorded)
    return found


@pytest.mark.slow
@pytest.mark.covers("C14")
@pytest.mark.parametrize("kind", ["free models", "fetched models", "several models", "unlike GPUs"])
def test_no_node_starts_later_than_first_promised_where_estimates_are_exact(kind, promised):
    count = 0
    for seed in range(60):
        rng = random.Random(seed)
        work, cluster = work_for(kind, rng), cluster_of(kind, rng)
        promised.clear()
        schedule = run_policy(work, cluster, backfill.conservative, instants=True)
        taken_s = dict(zip(schedule.node.tolist(), schedule.taken_s.tolist(), strict=True))
        for node, begin_s in promised.items():
            assert taken_s[node] <= begin_s * (1 + 1e-9), (seed, node)
        count += len(promised)
    assert count > 1_000


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fetched models", "several models", "unlike GPUs"])
def test_reservations_that_cannot_be_kept_are_made_anew(kind):
    for seed in range(40):
        rng = random.Random(seed)
        work, cluster = work_for(kind, rng, right=False), cluster_of(kind, rng)
        assert run_policy(work, cluster, backfill.conservative, instants=True).ran.not_run == 0
    changes = Change(at_s=3.0, remove=(0, 1)), Change(at_s=60.0, add=(0, 1))
    work = work_of(*((0.0, {"n": ("m", 10.0)}, {}) for _ in range(4)), models=[model("m", gpus=2)])
    schedule = run_policy(work, machine(4, changes=changes), backfill.conservative, instants=True)
    assert schedule.ran.not_run == 0


class ListedHeld:
    """What `backfill.Held` answers, from a list of intervals alone: every look asks every interval."""

    def __init__(self, gpus):
        self.intervals, self.all = [], (1 << gpus) - 1

    def hold(self, mask, begin_s, end_s):
        self.intervals.append((mask, begin_s, end_s))

    def release(self, mask, begin_s, end_s):
        self.intervals.remove((mask, begin_s, end_s))

    def begun_before(self, end_s):
        return sum({1 << gpu for mask, at_s, _ in self.intervals if end_s > at_s * (1 + 1e-12) for gpu in bits(mask)})

    def earliest(self, view, node, length_s):
        for begin_s in sorted({view.now_s, *(end_s for _, _, end_s in self.intervals)}):
            free, by_s, from_s = self.all, begin_s * (1 + 1e-12), (begin_s + length_s) * (1 - 1e-12)
            for mask, at_s, end_s in self.intervals:
                free &= ~mask if end_s > by_s and at_s < from_s else self.all
            place = view.cluster.window_in(free, view.model[node], view.need[node])
            if place >= 0:
                return begin_s, place
        raise AssertionError


def bits(mask):
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


@pytest.mark.slow
@pytest.mark.covers("C14")
@pytest.mark.parametrize("kind", ["free models", "fetched models", "several models", "unlike GPUs"])
def test_schedules_are_as_from_a_list_of_all_intervals(kind, monkeypatch):
    for seed in range(40):
        rng = random.Random(seed)
        work, cluster = work_for(kind, rng, right=seed % 2 == 0, shortest_s=seed % 3), cluster_of(kind, rng)
        fast = run_policy(work, cluster, backfill.conservative, instants=True)
        with monkeypatch.context() as patch:
            patch.setattr(backfill, "Held", ListedHeld)
            listed = run_policy(work, cluster, backfill.conservative, instants=True)
        for column in ("node", "gpu", "taken_s", "end_s"):
            assert getattr(fast, column).tolist() == getattr(listed, column).tolist(), (seed, column)


@pytest.mark.covers("C7")
def test_the_costliest_fetch_has_all_models_that_may_have_to_go():
    small = [model(name, 10.0, load_s=0.5, fetched=True) for name in "abcd"]
    large, never = model("large", 40.0, fetched=True), model("never", 80.0, fetched=True)
    cluster = HostCluster(machine(1, several_models=True), [*small, large, never])
    for number in range(4):
        cluster.take(0, 1, number)
        cluster.give_back(0, 1, number)
    assert cluster.worst_fetch_s(4) == cluster.fetch_to_s(4, 0) == (40 + 40) / 16 + 2
    assert cluster.worst_fetch_s(0) == (40 + 10) / 16 + 2, "the large one may be there; the last can never be"
    alone = HostCluster(machine(1), [*small, large, never])
    assert alone.worst_fetch_s(4) == (10 + 40) / 16 + 2


@pytest.mark.covers("C7")
def test_no_fetch_takes_longer_than_the_costliest():
    for seed in range(30):
        rng = random.Random(seed)
        models = [model(f"m{i}", rng.choice((3.0, 7.0, 15.0, 30.0)), fetched=True) for i in range(6)]
        cluster = HostCluster(machine(1, several_models=True), models)
        for number in rng.choices(range(6), k=60):
            assert cluster.fetch_to_s(number, 0) <= cluster.worst_fetch_s(number)
            cluster.take(0, 1, number)
            cluster.give_back(0, 1, number)
