"""Seeded small machines of a file that hold all models of a system, with every feature now and then."""

import random

from seamark_simulate.simulation.machine import Change, Failures, GpuKind, Host, Layout, Machine


def machine(seed, system, gpus):
    """Return a machine of `gpus` GPUs, the first of which have memory for every model."""
    rng = random.Random(seed)
    largest_gb = max(model.memory_gb for model in system.models.values())
    several = rng.random() < 0.6
    kinds = [
        GpuKind(
            name=name,
            memory_gb=largest_gb * rng.choice((1.0, 1.5, 3.0)) if several or rng.random() < 0.5 else None,
            pcie_gb_per_s=rng.choice((8.0, 16.0)),
            speed=rng.choice((0.5, 1.0, 1.0, 2.0)),
            speeds={"m0": rng.choice((1.0, 3.0))} if rng.random() < 0.3 else {},
        )
        for name in ("old", "new")
    ]
    small = GpuKind(name="small", memory_gb=largest_gb * 0.6)
    hosts = [
        _host(rng, "a", rng.choice(kinds), gpus),
        *(_host(rng, name, rng.choice([*kinds, small]), rng.randint(1, 3)) for name in "bc"[: rng.randint(0, 2)]),
    ]
    count = sum(host.gpus for host in hosts)
    return Machine(
        gpus=count,
        cold_load=rng.choice(("charged", "free")),
        layout=Layout(
            hosts=tuple(hosts),
            windows=rng.choice(("consecutive", "any")),
            span_hosts=rng.random() < 0.5,
            several_models=several,
            switch_overhead_s=rng.choice((0.0, 2.0)),
            preemption=rng.choice(("never", "lost", "resumed")),
            failures=Failures(mtbf_s=rng.choice((8.0, 60.0)), repair_s=3.0, attempts=rng.randint(1, 3))
            if rng.random() < 0.5
            else None,
            changes=_changes(rng, count) if rng.random() < 0.6 else (),
        ),
    )


def _host(rng, name, kind, gpus):
    return Host(
        name=name,
        kind=kind,
        gpus=gpus,
        nvlink_gb_per_s=rng.choice((None, 300.0)),
        network_gb_per_s=10.0,
        disk_gb_per_s=rng.choice((None, 2.0, 20.0)),
    )


def _changes(rng, gpus):
    """Return times at which GPUs leave; most come back."""
    changes = []
    for _ in range(rng.randint(1, 3)):
        chosen = tuple(sorted(rng.sample(range(gpus), rng.randint(1, gpus))))
        at_s = rng.choice((0.0, 1.0, 2.0, rng.random() * 30))
        changes.append(Change(at_s=at_s, remove=chosen))
        if rng.random() < 0.8:
            changes.append(Change(at_s=at_s + rng.choice((1.0, rng.random() * 20)), add=chosen))
    return tuple(changes)
