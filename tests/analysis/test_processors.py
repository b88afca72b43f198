"""Who used the processors of each node, from telemetry: load, server, others, a hypervisor."""

import numpy as np
import pytest
from samples import a_load, a_trial, codes, samples_of, write_samples, write_telemetry

from seamark.analysis.metrics.processors import others_unknown, processors_of
from seamark.analysis.metrics.telemetry import SeriesSummary
from seamark.analysis.summary import write_metrics
from seamark.storage.codec import encode
from seamark.storage.documents import write
from seamark.storage.paths import TrialFolder

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
    ("telemetry", "why"),
    [
        pytest.param(seen(host=0.9, server=0.1), "the load's processes ran elsewhere", id="load elsewhere"),
        pytest.param(seen(host=0.9, client=0.1), "the server's processes were not watched", id="server not started"),
        pytest.param(
            seen(client=0.1, server=0.1), "0 readings in the window, fewer than 3", id="nothing of the host"
        ),
        pytest.param(seen(n=2, host=0.9, client=0.1, server=0.1), "2 readings in the window", id="too few readings"),
        pytest.param(seen(host=0.9), "the load's processes ran elsewhere, or too short", id="host alone"),
    ],
)
def test_what_an_unwatched_process_used_is_not_called_others_and_why_is_said(telemetry, why):
    assert all(each.others is None and not each.crowded for each in processors_of(telemetry))
    assert (others_unknown(telemetry) or "").startswith(why)


def test_without_any_telemetry_nothing_is_said_and_with_all_of_it_others_are_known():
    assert (processors_of({}), others_unknown({})) == ((), None)
    assert others_unknown(seen(host=0.9, client=0.1, server=0.1)) is None
    assert others_unknown(seen(host=0.9, client=0.1), client_is_server=True) is None


def test_steal_is_known_where_the_use_by_others_is_not():
    (own,) = processors_of(seen(host=0.9, host_steal=0.3, client=0.1))
    assert (own.others, own.steal) == (None, 0.3)


def test_other_parties_of_the_trial_are_no_others_and_their_loads_no_servers():
    telemetry = seen(host=0.9, client=0.1, server=0.2)
    telemetry |= {("ingest.server", "cpu_ratio"): seen(server=0.3)["server", "cpu_ratio"]}
    telemetry |= {("ingest.client", "cpu_ratio"): seen(client=0.25)["client", "cpu_ratio"]}
    (own,) = processors_of(telemetry)
    assert (own.load, own.server, own.others) == (approx(0.35), approx(0.5), approx(0.05))


def written(tmp_path, others, readings=20, **share):
    """A trial of 10 s whose others use `others(at_s)` of the processors; its metrics.json."""
    folder = TrialFolder(root=tmp_path / "d-1--w-1--r1")
    ended = np.arange(1, 1001) * 0.01
    write_samples(folder.samples, samples_of(ended - 0.01, None, ended))
    at_s = np.linspace(0.4, 9.9, readings)
    rows = []
    for at in at_s:
        own = {"client": 0.06, "server": 0.045} | share
        rows += [(at, "host", "cpu_ratio", min(1.0, others(at) + sum(own.values())), "ratio")]
        rows += [(at + 0.03, source, "cpu_ratio", value, "ratio") for source, value in own.items()]
    write_telemetry(folder.telemetry, rows)
    write(folder.load, a_load())
    return encode(write_metrics(a_trial(), folder, client_is_server=False))


@pytest.mark.parametrize(
    ("others", "suspect"),
    [
        pytest.param(lambda at_s: 0.02, False, id="quiet"),
        pytest.param(lambda at_s: 0.9, True, id="all of the time"),
        pytest.param(lambda at_s: 0.9 if at_s > 8.5 else 0.02, True, id="the last seventh: 15 % of the whole"),
        pytest.param(lambda at_s: 0.9 if 5 < at_s < 5.5 else 0.02, False, id="one reading: a process that starts"),
        pytest.param(lambda at_s: 0.35 if at_s > 8.5 else 0.02, False, id="little, and for a part"),
    ],
)
def test_a_neighbour_that_comes_in_mid_run_is_seen(tmp_path, others, suspect):
    document = written(tmp_path, others)
    assert ("busy_elsewhere" in codes(document), document["verdict"] == "SUSPECT") == (suspect, suspect)
    assert "others_unknown" not in codes(document)


def test_a_window_with_too_few_readings_says_so_in_a_note_and_stays_valid(tmp_path):
    document = written(tmp_path, lambda at_s: 0.9, readings=2)
    assert document["verdict"] == "VALID"
    [reason] = [reason for reason in document["reasons"] if reason["code"] == "others_unknown"]
    assert (reason["severity"], reason["text"]) == (
        "note",
        "what others used of the processors is not known: 2 readings in the window, fewer than 3",
    )


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
    assert codes(document) >= {"busy_elsewhere"}
