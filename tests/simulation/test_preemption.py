"""Preemption by priority gives the schedule of its rule written out, and does not try every node at every event."""

import random
from dataclasses import replace

import pytest
from random_machines import machine as random_machine
from random_workflows import documents, nouns
from small_clusters import machine, model, work_of

from seamark_simulate.simulation.policies.queues import AGEING_PER_S, priority
from seamark_simulate.simulation.virtual_world import run_policy
from seamark_simulate.simulation.workload import workload_of


def literal(view):
    """The rule over all waiting nodes at every event: start what fits; then the first for which others make room."""
    waiting, cluster = [], view.cluster

    def given(node):
        return view.requests[view.request_of[node]].priority

    def take_ready():
        waiting.extend((AGEING_PER_S * view.now_s - given(node), node) for node in view.ready)
        view.ready.clear()
        waiting.sort(key=lambda entry: entry[0])

    def start_fitting():
        for entry in list(waiting):
            place = cluster.place(view.model[entry[1]], view.need[entry[1]])
            if place >= 0:
                waiting.remove(entry)
                view.start(entry[1], place)

    def victims(node):
        lower = [each for each in view.running() if given(each.node) < given(node)]
        lower.sort(key=lambda each: (given(each.node), -each.taken_s, -each.execution))
        for number in range(1, len(lower) + 1):
            mask = cluster.free
            for each in lower[:number]:
                mask |= each.gpus
            place = cluster.window_in(mask & cluster.up, view.model[node], view.need[node])
            if place >= 0:
                return [each for each in lower if each.gpus & cluster.mask_of(place, view.need[node])]
        return []

    def dispatch():
        take_ready()
        start_fitting()
        while entry := next((entry for entry in waiting if victims(entry[1])), None):
            for victim in victims(entry[1]):
                view.preempt(victim.execution)
            place = cluster.place(view.model[entry[1]], view.need[entry[1]])
            if place < 0:
                break
            waiting.remove(entry)
            view.start(entry[1], place)
            take_ready()
            start_fitting()

    return dispatch


def rows(work, cluster, policy, seed):
    schedule = run_policy(work, cluster, policy, instants=True, seed=seed)
    times = (column.tolist() for column in (schedule.node, schedule.gpu, schedule.taken_s, schedule.end_s))
    return list(zip(*times, schedule.outcome, strict=True))


@pytest.mark.slow
@pytest.mark.covers("C14")
def test_preemption_gives_the_schedule_of_its_rule_over_all_nodes():
    preempted = 0
    for seed in range(150):
        config, asked, gpus = documents(seed, most_requests=14)
        system, requests = nouns(config, asked)
        rng = random.Random(seed)
        requests = [replace(each, priority=rng.choice((0, 0, 1, 2, 5))) for each in requests]
        cluster = random_machine(seed, system, gpus)
        layout = replace(cluster.layout, preemption=rng.choice(("lost", "resumed")))
        cluster = replace(cluster, layout=layout)
        work = workload_of(system, requests, rng.choice(("timestamps", "all-at-zero")))
        expected = rows(work, cluster, literal, seed)
        assert rows(work, cluster, priority, seed) == expected, seed
        preempted += any(row[-1] == "preempted" for row in expected)
    assert preempted > 40


@pytest.mark.covers("C14")
def test_an_event_tries_as_many_nodes_with_a_long_queue_as_with_a_short_one():
    def tries_per_event(count):
        rng, at_s, requests, tried = random.Random(1), 0.0, [], 0
        for _ in range(count):
            at_s += rng.expovariate(1.5 * 4 / 10)
            requests.append((at_s, {"n": ("a", rng.expovariate(0.1))}, {"priority": rng.choice((0, 1, 5))}))

        def counted(view):
            place, window_in = view.cluster.place, view.cluster.window_in

            def counting(method):
                def call(*words):
                    nonlocal tried
                    tried += 1
                    return method(*words)

                return call

            view.cluster.place, view.cluster.window_in = counting(place), counting(window_in)
            return priority(view)

        work = work_of(*requests, models=[model("a", memory_gb=1.0)])
        run_policy(work, machine(4, preemption="resumed"), counted, instants=True)
        return tried / count

    assert tries_per_event(400) < 1.5 * tries_per_event(100) + 1
