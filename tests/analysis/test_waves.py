"""Starts of a closed load that recur with each latency, and loads whose starts do not."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import a_load, a_trial, codes, metrics_of, samples_of, write_samples

from seamark.analysis.checks.load import TOGETHER
from seamark.analysis.metrics.samples import open_samples
from seamark.analysis.metrics.waves import BINS, Waves, start_waves
from seamark.analysis.metrics.window import Window
from seamark.storage.paths import TrialFolder

pytestmark = pytest.mark.covers("D8")
LATENCY_S = 0.1
IN_STEP = np.repeat(np.arange(100) * LATENCY_S, 8)
ALONE = np.arange(100) * LATENCY_S
EVEN = np.arange(800) / 80
BY_CHANCE = np.sort(np.random.default_rng(1).uniform(0, 10, 800))


def waves_of(tmp_path: Path, sent_s: Sequence[float] | Any, end_s: float = 10.0) -> Waves | None:
    path = write_samples(tmp_path / "samples.parquet", samples_of(sent_s, None, np.asarray(sent_s) + LATENCY_S))
    return start_waves(open_samples(path), Window(start_ns=0, end_ns=round(end_s * 1e9), rule=""), LATENCY_S * 1e9)


def test_users_in_step_recur_with_each_latency_and_one_user_does_without_a_crowd(tmp_path: Path) -> None:
    # the last of 100 latencies has none after it; 8 of 800 starts are in the first of eight bins, none in the others
    for sent_s, dispersion in ((IN_STEP, 7.0), (ALONE, 0.875)):
        found = waves_of(tmp_path, sent_s)
        assert found == Waves(autocorrelation=pytest.approx(0.99), dispersion=pytest.approx(dispersion))


def test_independent_starts_do_not_recur_and_even_ones_do_not_vary(tmp_path: Path) -> None:
    found = waves_of(tmp_path, BY_CHANCE)
    assert found is not None
    assert abs(found.autocorrelation) < 0.15
    assert found.dispersion == pytest.approx(1.0, abs=0.2)
    assert waves_of(tmp_path, EVEN) is None


@pytest.mark.parametrize(
    ("more_s", "marked"), [(0.0, "note"), (0.002, "note"), (0.01, "suspect"), (-0.01, "suspect")]
)
def test_a_crowd_is_a_note_unless_those_behind_others_wait_differently(
    tmp_path: Path, more_s: float, marked: str
) -> None:
    rng = np.random.default_rng(2)
    sent_s = IN_STEP + np.tile(np.arange(8) * 1e-5, 100)
    took_s = LATENCY_S + rng.normal(0, 0.003, 800) + np.where(np.arange(800) % 8 == 0, -more_s, 0)
    folder = TrialFolder(root=tmp_path)
    write_samples(folder.samples, samples_of(sent_s, None, sent_s + took_s))
    document = metrics_of(a_trial({"concurrency": 8}), a_load(), folder, scenario="s", client_is_server=False)
    assert [reason["severity"] for reason in document["reasons"] if reason["code"] == "waves"] == [marked]


def test_one_load_in_twenty_with_independent_phases_is_more_uneven_than_the_limit() -> None:
    rng, limit, loads = np.random.default_rng(3), TOGETHER, 4000
    counts = rng.multinomial(64, [1 / BINS] * BINS, loads)
    share = float((counts.var(axis=1) / counts.mean(axis=1) > limit).mean())
    assert share == pytest.approx(0.05, abs=0.015)
    assert float((counts.var(axis=1) / counts.mean(axis=1) > 1.0).mean()) > 0.25


def test_a_request_that_was_never_sent_is_no_start(tmp_path: Path) -> None:
    due_s = np.concatenate([IN_STEP, np.full(200, 9.95)])
    sent_s = np.concatenate([IN_STEP, np.full(200, np.nan)])
    path = write_samples(tmp_path / "samples.parquet", samples_of(due_s, sent_s, sent_s + LATENCY_S))
    found = start_waves(open_samples(path), Window(start_ns=0, end_ns=10**10, rule=""), LATENCY_S * 1e9)
    assert found == waves_of(tmp_path, IN_STEP)


def test_nothing_is_known_of_a_window_of_fewer_than_ten_latencies(tmp_path: Path) -> None:
    assert waves_of(tmp_path, IN_STEP, end_s=0.99) is None
    assert waves_of(tmp_path, IN_STEP, end_s=1.0) is not None


@pytest.mark.parametrize(
    ("settings", "sent_s", "marked"),
    [
        ({"concurrency": 8}, IN_STEP, True),
        ({"concurrency": 1}, ALONE, False),
        ({"concurrency": 8}, BY_CHANCE, False),
        ({"pattern": "poisson", "rate_rps": 80.0}, IN_STEP, False),
    ],
)
def test_a_closed_load_of_users_in_step_is_marked(
    tmp_path: Path, settings: dict[str, Any], sent_s: Any, marked: bool
) -> None:
    folder = TrialFolder(root=tmp_path)
    write_samples(folder.samples, samples_of(sent_s, None, sent_s + LATENCY_S))
    document = metrics_of(a_trial(settings), a_load(), folder, scenario="s", client_is_server=False)
    assert ("waves" in codes(document)) == marked
