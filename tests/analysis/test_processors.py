"""Who used the processors of each node, from telemetry: load, server, others, a hypervisor."""

import numpy as np
import pytest
from samples import a_load, a_trial, samples_of, write_samples, write_telemetry

from seamark.analysis.metrics.resources import processors_of
from seamark.analysis.metrics.telemetry import SeriesSummary
from seamark.analysis.summary import write_metrics
from seamark.storage.codec import encode
from seamark.storage.paths import TrialFolder, write

approx = pytest.approx


def seen(n=10, **series):
    """Telemetry of shares: `host=0.9` is host's cpu_ratio, `host_steal=0.1` its cpu_steal_ratio."""
    found = {}
    for word, value in series.items():
        source, _, name = word.partition("_")
        key = source.replace("AT", "@"), f"cpu_{name}_ratio" if name else "cpu_ratio"
        found[key] = SeriesSummary(unit="ratio", n=n, mean=value, min=0, p50=0, p95=0, max=1)
    return found


def test_others_have_what_is_left_of_the_machine_without_load_server_steal_and_interrupts():
    (own,) = processors_of(seen(host=0.95, host_steal=0.1, host_irq=0.05, client=0.2, server=0.1, etcd=0.05))
    assert (own.node, own.busy, own.steal) == (None, 0.95, 0.1)
    assert (own.load, own.server) == (0.2, approx(0.15)), "parts of a server are the server's"
    assert own.others == approx(0.45)


def test_each_node_is_judged_by_what_runs_on_it():
    own, other = processors_of(seen(host=0.3, client=0.28, hostATn2=0.9, serverATn2=0.1))
    assert (own.node, own.others, own.server) == (None, approx(0.02), None)
    assert (other.node, other.others, other.load) == ("n2", approx(0.8), None)


@pytest.mark.parametrize(
    "telemetry",
    [
        pytest.param(seen(host=0.9, server=0.1), id="the load runs elsewhere"),
        pytest.param(seen(host=0.9, client=0.1), id="the server was not started here and may be on this machine"),
        pytest.param(seen(client=0.1, server=0.1), id="nothing of the machine"),
        pytest.param(seen(n=2, host=0.9, client=0.1, server=0.1), id="too few readings"),
    ],
)
def test_what_an_unwatched_process_used_is_not_called_others(telemetry):
    assert processors_of(telemetry) == ()


def test_a_service_inside_the_client_has_no_other_server():
    (own,) = processors_of(seen(host=0.9, client=0.3), client_is_server=True)
    assert own.others == approx(0.6)


def test_a_trial_on_a_machine_that_others_fill_is_suspect(tmp_path):
    folder = TrialFolder(root=tmp_path / "d-1--w-1--r1")
    ended = np.arange(1, 1001) * 0.01
    write_samples(folder.samples, samples_of(ended - 0.01, None, ended))
    shares = {"host": 0.97, "client": 0.06, "server": 0.045}
    rows = [(at, source, "cpu_ratio", share, "ratio") for at in range(1, 10) for source, share in shares.items()]
    write_telemetry(folder.telemetry, rows)
    write(folder.load, a_load())
    document = encode(write_metrics(a_trial(), folder, client_is_server=False))
    assert document["verdict"] == "SUSPECT"
    assert {reason["code"] for reason in document["reasons"]} >= {"busy_elsewhere"}
