"""Trials of one comparison on nodes that differ: what differs is named, and the treatments are no longer valid."""

import json

import numpy as np
import pytest
from samples import a_load, a_trial, codes, samples_of, write_samples

from seamark.analysis.checks.nodes import add_machine, nodes_differ
from seamark.analysis.summary import summarise, write_metrics
from seamark.model.results.trial_meta import Machine
from seamark.model.trial import Plan
from seamark.storage.codec import decode, encode
from seamark.storage.documents import write
from seamark.storage.paths import ScenarioFolder

MACHINE = {
    "cpu_model": "AMD EPYC 7H12",
    "cpus_physical": 128,
    "kernel": "4.18.0-477",
    "governor": "performance",
    "memory_bytes": 512 << 30,
    "cpu": {"turbo": True, "most_hz": 2_600_000_000, "kernel_options": []},
    "clock": {"source": "tsc"},
    "gpu": {"driver": "535.104", "cuda": "12.2", "devices": [{"name": "A100", "power_cap_w": 400.0}] * 4},
    "network": {"infiniband": [{"adapter": "mlx5_0", "firmware": "20.31", "rate_bit_per_s": 200e9}]},
    "mounts": {"results": {"type": "lustre"}},
}


def changed(path, value):
    """A machine with one fact of another value."""
    copy = json.loads(json.dumps(MACHINE))
    *groups, last = path
    inside = copy
    for name in groups:
        inside = inside[name]
    inside[last] = value
    return copy


def said(*machines):
    seen = {}
    for number, machine in enumerate(machines, 1):
        add_machine(seen, f"n{number}", decode(machine, Machine))
    reason = nodes_differ(seen)
    return reason and reason.text


@pytest.mark.covers("E-FR08")
@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("cpu_model",), "Intel Xeon 8358", "CPU model: AMD EPYC 7H12 (n1), Intel Xeon 8358 (n2)"),
        (("governor",), "powersave", "governor: performance (n1), powersave (n2)"),
        (("kernel",), "5.14.0", "kernel: 4.18.0-477 (n1), 5.14.0 (n2)"),
        (("cpu", "turbo"), False, "turbo: on (n1), off (n2)"),
        (("cpu", "most_hz"), 2_000_000_000, "greatest CPU clock (Hz): 2600000000 (n1), 2000000000 (n2)"),
        (("cpu", "kernel_options"), ["mitigations=off"], "kernel options: none (n1), mitigations=off (n2)"),
        (("clock", "source"), "hpet", "clock source: tsc (n1), hpet (n2)"),
        (("gpu", "driver"), "550.54", "GPU driver: 535.104 (n1), 550.54 (n2)"),
        (("gpu", "devices", 2, "power_cap_w"), 300.0, "GPU power cap (W): 400 (n1), 300 and 400 (n2)"),
        (("network", "infiniband", 0, "firmware"), "20.40", "InfiniBand firmware: 20.31 (n1), 20.40 (n2)"),
        (("mounts", "results", "type"), "tmpfs", "file system of results: lustre (n1), tmpfs (n2)"),
        (("memory_bytes",), 256 << 30, "memory (GiB): 512 (n1), 256 (n2)"),
    ],
)
def test_what_differs_between_nodes_is_named_with_who_has_what(path, value, text):
    assert text in (said(MACHINE, changed(path, value)) or "")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("governor",), None),
        (("gpu",), {}),
        (("gpu", "devices"), [{"name": "A100", "power_cap_w": 400.0}]),
        (("memory_bytes",), (512 << 30) - 4096),
        (("hostname",), "n2"),
        (("network",), None),
    ],
)
def test_what_is_not_known_or_does_not_matter_is_no_difference(path, value):
    assert said(MACHINE, changed(path, value)) is None


def test_many_nodes_are_named_by_a_few():
    text = said(MACHINE, *[changed(("kernel",), "6.1")] * 9)
    assert "6.1 (n10, n2, n3, n4 and 5 more)" in (text or "")


@pytest.fixture
def summary(tmp_path):
    """Return summary.json of treatments of two groups, on the machine that is given for each trial."""

    def of(*metas):
        folder = ScenarioFolder(root=tmp_path / "s")
        trials = []
        for number, (group, meta) in enumerate(metas):
            trial = a_trial(id=f"d-1--w-{number}--r1", workload=f"w-{number}", deployment="d-1", group=group)
            own, ends = folder.trial(trial.id), np.arange(1, 10_001) * 0.001
            write_samples(own.samples, samples_of(ends - 0.001, None, ends))
            write(own.load, a_load())
            write_metrics(trial, own)
            if meta is not None:
                own.meta.write_text(meta if isinstance(meta, str) else json.dumps(meta))
            trials.append(trial)
        plan = Plan(
            scenario="s",
            source="s.yaml",
            seed=1,
            repetitions=1,
            max_retries=0,
            factors={},
            deployments=(),
            trials=tuple(trials),
        )
        return encode(summarise(plan, folder))["treatments"]

    return of


def meta_of(**machines):
    return {"node": next(iter(machines)), "nodes": {name: {"machine": machine} for name, machine in machines.items()}}


@pytest.mark.covers("E-NFR04")
def test_treatments_that_were_measured_on_unlike_nodes_are_suspect_and_others_are_not(summary):
    slow = changed(("governor",), "powersave")
    a, b, alone = summary(("w", meta_of(n1=MACHINE)), ("w", meta_of(n2=slow)), ("other", meta_of(n2=slow)))
    for treatment in (a, b):
        assert treatment["verdict"] == "SUSPECT"
        [reason] = [reason for reason in treatment["reasons"] if reason["code"] == "nodes_differ"]
        assert "governor: performance (n1), powersave (n2)" in reason["text"]
        assert "constraint" in reason["remedy"]
    assert alone["verdict"] == "VALID"
    assert "nodes_differ" not in codes(alone)


def test_nodes_of_one_trial_are_compared_too_and_older_records_by_what_they_have(summary):
    [one] = summary(("w", meta_of(n1=MACHINE, n2=changed(("kernel",), "6.1"))))
    assert "nodes_differ" in codes(one)
    old = {"node": "n1", "machine": {"cpu_model": "another", "kernel": "4.18.0-477"}}
    assert all("nodes_differ" in codes(each) for each in summary(("w", meta_of(n2=MACHINE)), ("w", old)))


@pytest.mark.covers("E-NFR04")
@pytest.mark.parametrize("meta", [None, "{", "[]", {"nodes": []}, {"nodes": {"n1": None}}, {"machine": 1}])
def test_a_missing_or_damaged_meta_json_says_nothing_and_stops_nothing(summary, meta):
    assert all("nodes_differ" not in codes(each) for each in summary(("w", meta_of(n1=MACHINE)), ("w", meta)))
