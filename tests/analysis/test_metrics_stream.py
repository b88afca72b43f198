"""Streamed replies: time to first token, time per output token, gaps between chunks, tokens inside the window."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from samples import a_load, a_trial, metrics_of, samples_of, write_chunks, write_samples

from seamark.analysis.metrics.samples import DamagedError, open_samples
from seamark.analysis.metrics.stream import read_stream
from seamark.analysis.metrics.window import Window
from seamark.model.results.trial_metrics import TrialMetrics
from seamark.model.sample import Failure
from seamark.model.scenario import Slo
from seamark.report.terminal import quick_load_text
from seamark.storage.codec import decode
from seamark.storage.paths import TrialFolder

pytestmark = pytest.mark.covers("E-FR09")


def the_window(start_s: float, end_s: float) -> Window:
    return Window(start_ns=round(start_s * 1e9), end_ns=round(end_s * 1e9), rule="fixed")


def stream_of(folder: TrialFolder, rows: np.ndarray, chunks: list[tuple[int, float, int]], window: Window) -> Any:
    write_samples(folder.samples, rows)
    write_chunks(folder.chunks, chunks)
    return read_stream(folder.chunks, open_samples(folder.samples), window)


def test_tokens_count_by_the_chunks_that_came_inside_the_window(folder):
    rows = samples_of([0.0, 0.5], None, [1.0, 2.0], first_s=[0.5, 1.25], units=[6, 4])
    chunks = [(0, 0.5, 1), (0, 0.75, 1), (0, 1.0, 1), (1, 1.25, 1), (1, 2.0, 1)]
    assert stream_of(folder, rows, chunks, the_window(0.7, 1.5)).units == pytest.approx(6 * 2 / 3 + 4 / 2)
    assert stream_of(folder, rows, chunks, the_window(0.0, 2.0)).units == pytest.approx(10)


def test_tokens_of_a_reply_that_failed_do_not_count(folder):
    rows = samples_of([0.0, 0.0], None, [1.0, 1.0], first_s=[0.5, 0.5], units=[6, 4], failure=[3, 0])
    chunks = [(0, 0.5, 3), (0, 1.0, 3), (1, 0.5, 2), (1, 1.0, 2)]
    assert stream_of(folder, rows, chunks, the_window(0.0, 2.0)).units == pytest.approx(4)


def test_gaps_lie_between_the_chunks_of_one_reply_and_two_of_one_read_are_zero_apart(folder):
    rows = samples_of([0.0, 0.0], None, [1.0, 1.1], first_s=[0.5, 0.6], units=[4, 2])
    chunks = [(0, 0.5, 1), (1, 0.6, 1), (0, 0.8, 2), (0, 1.0, 1), (1, 1.1, 1)]
    gaps_ns = stream_of(folder, rows, chunks, the_window(0.0, 2.0)).gaps_ns
    assert sorted(gaps_ns.tolist()) == [0, 200_000_000, 300_000_000, 500_000_000]


def test_gaps_are_of_the_good_replies_that_were_due_in_the_window_as_ttft_and_tpot_are(folder):
    rows = samples_of([0.2, 0.3, 0.9], None, [0.8, 0.8, 2.0], first_s=[0.5, 0.5, 1.5], units=2, failure=[0, 3, 0])
    chunks = [(at, at_s, 1) for at, times in enumerate(([0.5, 0.8], [0.5, 0.6, 0.7], [1.5, 2.0])) for at_s in times]
    gaps_ns = stream_of(folder, rows, chunks, the_window(0.25, 1.0)).gaps_ns
    assert gaps_ns.tolist() == [500_000_000], "that of the last reply, though its chunks came after the window"


def test_gaps_do_not_depend_on_how_the_file_is_cut(folder):
    rng = np.random.default_rng(5)
    chunks = [
        (index, at_s, 1)
        for index in range(50)
        for at_s in (rng.random() + np.cumsum(rng.exponential(0.01, 40))).tolist()
    ]
    rows = samples_of(np.zeros(50), None, np.full(50, 3.0), first_s=np.full(50, 1.0), units=40)
    gaps_ns = stream_of(folder, rows, chunks, the_window(0.0, 3.0)).gaps_ns
    expected = np.concatenate(
        [np.diff([round(at_s * 1e9) for of, at_s, _ in chunks if of == index]) for index in range(50)]
    )
    assert sorted(gaps_ns.tolist()) == sorted(expected.tolist())


@pytest.mark.slow
def test_a_trial_of_streams_has_the_times_that_were_put_in(folder):
    count, tokens = 2000, 11
    due = np.arange(count) / 200.0
    rows = samples_of(due, due + 0.002, due + 0.152, first_s=due + 0.052, units=tokens)
    write_samples(folder.samples, rows)
    gap_s = 0.1 / (tokens - 1)
    write_chunks(
        folder.chunks, [(k, due[k] + 0.052 + gap_s * chunk, 1) for k in range(count) for chunk in range(tokens)]
    )
    slos = (Slo(metric="ttft_s", op="<=", limit=0.06), Slo(metric="tpot_s", op="<=", limit=0.009))
    trial = a_trial({"pattern": "constant", "rate_rps": 200.0, "warmup_s": 0.0, "duration_s": 10.0}, slos=slos)
    document = metrics_of(trial, a_load(), folder, scenario="s")
    assert document["ttft_ms"]["p99"] == pytest.approx(50, rel=1e-6)
    assert document["ttft_response_ms"]["p99"] == pytest.approx(52, rel=1e-6)
    assert document["tpot_ms"]["p50"] == pytest.approx(10, rel=1e-6)
    assert document["inter_chunk_ms"]["mean"] == pytest.approx(10, rel=1e-6)
    assert document["normalised_latency_ms"]["p50"] == pytest.approx(150 / tokens, rel=1e-6)
    assert document["throughput"]["value"] == pytest.approx(200 * tokens, rel=0.03)
    assert document["goodput"]["per_s"] == 0, "each token took longer than its objective"


def test_an_objective_on_ttft_counts_from_the_actual_send_and_one_on_its_response_from_the_intended_one(folder):
    due = np.arange(2000) / 200.0
    write_samples(folder.samples, samples_of(due, due + 0.03, due + 0.1, first_s=due + 0.05, units=9))
    write_chunks(folder.chunks, [(k, at_s, 1) for k in range(2000) for at_s in (due[k] + 0.05, due[k] + 0.1)])
    names = ("ttft_s", "ttft_p99_s", "ttft_response_s", "ttft_response_p99_s")
    slos = tuple(Slo(metric=name, op="<=", limit=0.04) for name in names)
    trial = a_trial({"pattern": "constant", "rate_rps": 200.0}, slos=slos[:2])
    document = metrics_of(trial, a_load(), folder, scenario="s")
    assert document["goodput"]["ratio"] == 1
    document = metrics_of(replace(trial, slos=slos), a_load(), folder, scenario="s")
    assert [slo["value"] for slo in document["slos"]] == pytest.approx([0.02, 0.02, 0.05, 0.05])
    assert [slo["met"] for slo in document["slos"]] == [True, True, False, False]
    assert document["goodput"]["ratio"] == 0
    said = quick_load_text(decode(document, TrialMetrics), None)
    assert "\nTTFT  " in said
    assert "\nTTFT response " in said


def test_a_reply_of_one_token_has_no_time_per_output_token_and_does_not_meet_an_objective_on_it(folder):
    due = np.arange(1000) / 100.0
    write_samples(folder.samples, samples_of(due, None, due + 0.05, first_s=due + 0.05, units=1))
    write_chunks(folder.chunks, [(k, due[k] + 0.05, 1) for k in range(1000)])
    trial = a_trial({"warmup_s": 0.0}, slos=(Slo(metric="tpot_s", op="<=", limit=1.0),))
    document = metrics_of(trial, a_load(), folder, scenario="s")
    assert document["tpot_ms"] is None
    assert document["goodput"]["ratio"] == 0


def five_chunks_of_five(folder: TrialFolder, **columns: Any) -> dict[str, Any]:
    """Measure 2,000 replies of 25 tokens in 5 chunks, one every 50 ms."""
    due = np.arange(2000) / 200.0
    rows = samples_of(due, None, due + 0.25, first_s=due + 0.05, units=25, **columns)
    write_samples(folder.samples, rows)
    write_chunks(folder.chunks, [(k, due[k] + 0.05 * chunk, 1) for k in range(2000) for chunk in range(1, 6)])
    slos = (Slo(metric="tpot_s", op="<=", limit=0.009), Slo(metric="throughput", op=">=", limit=1))
    trial = a_trial({"pattern": "constant", "rate_rps": 200.0}, slos=slos)
    return metrics_of(trial, a_load(unit="token"), folder, scenario="s")


def severities(document: dict[str, Any]) -> dict[str, str]:
    return {reason["code"]: reason["severity"] for reason in document["reasons"]}


def test_time_per_token_is_over_the_tokens_after_the_first_chunk(folder):
    document = five_chunks_of_five(folder, first_units=5)
    assert document["tpot_ms"]["p50"] == pytest.approx(200 / 20)
    assert document["goodput"]["ratio"] == 0, "an objective of 9 ms a token"
    assert "first_chunk_not_counted" not in severities(document)


def test_a_first_chunk_of_an_unknown_number_of_tokens_is_taken_for_one_and_said_so(folder):
    document = five_chunks_of_five(folder)
    assert document["tpot_ms"]["p50"] == pytest.approx(200 / 24)
    assert severities(document)["first_chunk_not_counted"] == "suspect"
    [text] = [each["text"] for each in document["reasons"] if each["code"] == "first_chunk_not_counted"]
    assert "chunks have 5 tokens" in text
    assert "17 % too low" in text


def test_chunks_that_nobody_counted_are_no_tokens(folder):
    document = five_chunks_of_five(folder, uncounted=1)
    assert document["throughput"]["unit"] == "chunks_per_s"
    assert document["tpot_ms"] is document["normalised_latency_ms"] is None
    assert document["ttft_ms"]["p50"] == pytest.approx(50)
    assert severities(document)["tokens_not_counted"] == "suspect"
    assert [slo["met"] for slo in document["slos"]] == [None, None]
    assert document["goodput"] is None, "it is not known which replies meet an objective on their tokens"


def test_a_few_replies_that_nobody_counted_are_named_and_in_no_time_per_token(folder):
    document = five_chunks_of_five(folder, uncounted=np.arange(2000) % 400 == 0, first_units=5)
    assert document["throughput"]["unit"] == "tokens_per_s"
    assert document["tpot_ms"]["max"] == pytest.approx(10)
    assert severities(document)["tokens_not_counted"] == "note"


def test_time_to_first_output_is_that_of_the_first_token_that_is_no_reasoning(folder):
    due = np.arange(2000) / 200.0
    answer = np.where(np.arange(2000) % 10 == 0, np.nan, due + 0.15)
    rows = samples_of(due, due + 0.01, due + 0.25, first_s=due + 0.05, answer_s=answer, units=9)
    rows["failure"][::20] = Failure.TIMEOUT
    write_samples(folder.samples, rows)
    settings = {"pattern": "constant", "rate_rps": 200.0}
    trial = a_trial(settings, slos=(Slo(metric="ttfo_s", op="<=", limit=0.2),))
    document = metrics_of(trial, a_load(unit="token"), folder, scenario="s")
    assert document["ttfo_ms"]["mean"] == pytest.approx(140)
    assert document["ttfo_ms"]["censored"] == 100, "timed out while they reasoned; 100 others ended so"
    assert document["ttft_ms"]["censored"] == 0
    assert document["goodput"]["ratio"] == pytest.approx(0.9)


def test_samples_of_an_older_version_have_no_time_to_first_output_and_one_token_in_the_first_chunk(folder):
    due = np.arange(2000) / 200.0
    write_samples(folder.samples, samples_of(due, None, due + 0.25, first_s=due + 0.05, units=25))
    old = pq.read_table(folder.samples).drop_columns(["answer_ns", "first_units", "uncounted"])
    pq.write_table(old, folder.samples)
    document = metrics_of(a_trial(), a_load(unit="token"), folder, scenario="s")
    assert document["ttfo_ms"] is None
    assert document["tpot_ms"]["p50"] == pytest.approx(200 / 24)


def test_replies_that_come_whole_have_no_times_of_streams(folder):
    due = np.arange(1000) / 100.0
    write_samples(folder.samples, samples_of(due, None, due + 0.05))
    document = metrics_of(a_trial({"warmup_s": 0.0}), a_load(), folder, scenario="s")
    assert [document[name] for name in ("ttft_ms", "tpot_ms", "inter_chunk_ms")] == [None, None, None]


def test_damaged_chunks_are_said_to_be_damaged(folder):
    write_samples(folder.samples, samples_of([0.0], None, [1.0], first_s=[0.5]))
    folder.chunks.write_bytes(b"PAR1 and nothing more")
    with pytest.raises(DamagedError, match=r"chunks\.parquet is damaged"):
        read_stream(folder.chunks, open_samples(folder.samples), the_window(0.0, 1.0))
