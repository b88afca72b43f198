"""What the load generator can do here, and whether a trial came close to it."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from samples import a_load, a_trial, metrics_of, samples_of, write_chunks, write_samples

from seamark.model.results.calibration import Calibration, WireCeiling
from seamark.model.results.load_record import ConnectionFigures, WorkerReport
from seamark.model.sample import CHUNK, SAMPLE
from seamark.storage.codec import encode
from seamark.storage.documents import read, write_json
from seamark.storage.paths import TrialFolder
from seamark.trials.calibration import NullServerLoad, calibrate, calibration_file, ceiling_of, wire_ceilings

pytestmark = pytest.mark.covers("E-FR09")


def known(results: Path, **ceilings: dict[str, float | None]) -> None:
    write_json(calibration_file(results, "n1"), {"cores": 4, "ceilings": ceilings})


def test_the_cost_of_a_request_is_that_of_itself_its_bytes_and_its_chunks():
    ceiling = WireCeiling(requests_per_s=1000.0, bytes_per_s=1e6, chunks_per_s=1e4, joined_chunks_per_s=1e5)
    assert ceiling.for_replies(0, 0) == pytest.approx(1000)
    assert ceiling.for_replies(1000, 0) == pytest.approx(500)
    assert ceiling.for_replies(1000, 20) == pytest.approx(250)
    assert ceiling.for_replies(1000, 20, 400) == pytest.approx(125)
    assert WireCeiling(requests_per_s=1000.0).for_replies(1e9, 1e9, 1e9) == pytest.approx(1000)


def a_run(replies: int, reply_bytes: int, reads: list[int], **costs_s: float) -> NullServerLoad:
    """A load whose CPU time is made of `costs_s`; `reads` are the chunks that each read brought."""
    samples = np.zeros(replies, dtype=SAMPLE)
    samples["bytes_received"] = reply_bytes
    chunks = np.zeros(len(reads), dtype=CHUNK)
    chunks["events"] = reads
    cpu_s = replies * costs_s["request"] + replies * reply_bytes * costs_s["byte"]
    cpu_s += len(reads) * costs_s["read"] + (sum(reads) - len(reads)) * costs_s["joined"]
    return NullServerLoad(samples=samples, chunks=chunks, cpu_s=cpu_s, wall_s=4 * cpu_s)


def test_costs_are_told_apart_however_reads_were_joined():
    costs_s = {"request": 1e-5, "byte": 2e-10, "read": 5e-6, "joined": 1e-6}
    found = wire_ceilings(
        a_run(5000, 0, [], **costs_s),
        a_run(100, 1 << 20, [], **costs_s),
        a_run(50, 50_000, [1] * 9000 + [4] * 300, **costs_s),
        a_run(80, 50_000, [256] * 80, **costs_s),
    )
    assert vars(found) == pytest.approx(
        {"requests_per_s": 1e5, "bytes_per_s": 5e9, "chunks_per_s": 2e5, "joined_chunks_per_s": 1e6}, rel=1e-6
    )


def test_the_file_says_whether_the_client_or_something_else_held_a_load_back():
    run = a_run(100, 0, [2] * 100, request=1e-3, byte=0.0, read=0.0, joined=0.0)
    said = run.summary()
    assert (said.client_cpu_ratio, said.bound_by) == (pytest.approx(0.25), "server or machine")
    assert (said.chunks_per_read, said.requests_per_s) == (2.0, pytest.approx(250))
    assert replace(run, wall_s=run.cpu_s).summary().bound_by == "client"


def test_a_trials_ceiling_is_that_of_its_kind_of_worker_on_its_node_times_its_processes(tmp_path):
    known(
        tmp_path,
        wire={"requests_per_s": 1000.0, "bytes_per_s": 1e6, "chunks_per_s": None},
        threads={"requests_per_s": 50.0},
    )
    load = a_load(node="n1", client={"workers": "wire", "processes": 2})
    assert ceiling_of(tmp_path, load) == WireCeiling(requests_per_s=2000.0, bytes_per_s=2e6)
    load_ended = a_load(node="n1", client={"workers": "processes", "processes": 2})
    network = ConnectionFigures(**dict.fromkeys((each.name for each in fields(ConnectionFigures)), 1))
    spread = replace(load_ended, workers=(WorkerReport(network=network),))
    assert ceiling_of(tmp_path, spread) == ceiling_of(tmp_path, load)
    many = a_load(node="n1", client={"workers": "threads", "processes": 16})
    assert ceiling_of(tmp_path, many) == WireCeiling(requests_per_s=200.0), "no more than the cores can do"


@pytest.mark.parametrize(
    "load",
    [
        {"node": "another", "client": {"workers": "wire", "processes": 1}},
        {"node": "n1", "client": {"workers": "processes", "processes": 1}},
        {"node": "n1"},
        {},
    ],
)
def test_without_a_calibration_there_is_no_ceiling(tmp_path, load):
    known(tmp_path, wire={"requests_per_s": 1000.0})
    assert ceiling_of(tmp_path, a_load(**load)) is None


def test_a_damaged_calibration_is_none(tmp_path):
    known(tmp_path)
    calibration_file(tmp_path, "n1").write_text('{"cores": 4, "ceil')
    assert ceiling_of(tmp_path, a_load(node="n1", client={"workers": "wire", "processes": 1})) is None


@pytest.mark.parametrize(("ceiling_rps", "marked"), [(120.0, True), (130.0, False)])
def test_a_trial_at_four_fifths_of_its_clients_ceiling_is_client_bound(tmp_path, ceiling_rps, marked):
    folder = TrialFolder(root=tmp_path)
    due = [k / 100 for k in range(1000)]
    write_samples(folder.samples, samples_of(due, None, [at + 0.005 for at in due]))
    ceiling = WireCeiling(requests_per_s=ceiling_rps)
    document = metrics_of(a_trial(), a_load(), folder, scenario="s", client_is_server=False, ceiling=ceiling)
    assert ("client_bound" in {reason["code"] for reason in document["reasons"]}) == marked


@pytest.mark.slow
@pytest.mark.parametrize(("chunks_per_s", "joined_per_s", "marked"), [(1200, 1e6, True), (1300, 1e6, False)])
@pytest.mark.parametrize("together", [False, True], ids=["apart", "joined"])
def test_a_trial_of_streams_at_four_fifths_of_the_chunks_its_client_can_read_is_client_bound(
    tmp_path, chunks_per_s, joined_per_s, marked, together
):
    folder = TrialFolder(root=tmp_path)
    due = np.arange(1000) / 100
    rows = samples_of(due, None, due + 0.009, first_s=due + 0.001, units=20 if together else 10)
    write_samples(folder.samples, rows)
    events = [2 if together else 1] * 10
    chunks = [(k, at + 0.001 * n, count) for k, at in enumerate(due) for n, count in enumerate(events)]
    write_chunks(folder.chunks, chunks)
    ceiling = WireCeiling(requests_per_s=1e6, chunks_per_s=chunks_per_s, joined_chunks_per_s=joined_per_s)
    document = metrics_of(a_trial(), a_load(), folder, scenario="s", client_is_server=False, ceiling=ceiling)
    assert ("client_bound" in {reason["code"] for reason in document["reasons"]}) == marked


@pytest.mark.serial
@pytest.mark.services
def test_calibration_of_this_machine_is_written_and_found_again(tmp_path):
    calibration = calibrate(tmp_path, seconds=0.3)
    kept = read(calibration_file(tmp_path, str(calibration.node)), Calibration)
    assert encode(kept) == encode(calibration)
    wire = ceiling_of(tmp_path, a_load(node=calibration.node, client={"workers": "wire", "processes": 1}))
    assert wire is not None
    assert wire.requests_per_s > 1000
    assert wire.bytes_per_s is not None
    assert wire.for_replies(1 << 20, 0) < wire.requests_per_s / 4, "a large reply costs more than a small one"
    assert wire.chunks_per_s is not None
    assert wire.chunks_per_s > 3000
    assert wire.joined_chunks_per_s is None or wire.joined_chunks_per_s > wire.chunks_per_s
    assert calibration.runs["joined_chunks"].chunks_per_read > calibration.runs["chunks"].chunks_per_read >= 1
    assert 0 < calibration.runs["small_replies"].client_cpu_ratio < 1.5
    assert calibration.schedule_lag_us.p50 <= calibration.schedule_lag_us.p99
