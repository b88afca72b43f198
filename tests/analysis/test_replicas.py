"""Figures of replicas from their own counters."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seamark.analysis.metrics.document import replica_figures
from seamark.analysis.metrics.telemetry import summarise_telemetry
from seamark.model.results.replicas import (
    ANSWERS,
    PREFIX_HITS,
    PREFIX_QUERIES,
    REQUESTS,
    ReplicaFigures,
    Replicas,
)


def figures(tmp_path: Path, rates: Mapping[str, tuple[int, ...]], **until_s: float) -> Replicas | None:
    """Return the figures of replicas from 2 to 7 s whose counters grow at these rates, each until a time."""
    rows = [
        {"at_s": at, "source": source, "name": name, "value": 100 + rate * at, "unit": "total"}
        for source, own in rates.items()
        for name, rate in zip((REQUESTS, PREFIX_QUERIES, PREFIX_HITS), own, strict=False)
        for at in (0.0, 2.5, 4.0, 10.0)
        if at <= until_s.get(source.replace("-", "_"), 10.0)
    ]
    rows += [
        {"at_s": at, "source": source, "name": ANSWERS, "value": 1.0, "unit": ""}
        for source in rates
        for at in (3, 4, 5)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "telemetry.parquet")
    return replica_figures(summarise_telemetry(tmp_path / "telemetry.parquet", 2.0, 7.0))


@pytest.mark.covers("D8")
def test_shares_and_hits_are_those_of_the_window_in_the_order_of_the_numbers(tmp_path: Path) -> None:
    found = figures(tmp_path, {"replica-2": (6, 60, 30), "replica-10": (1, 0, 0), "replica-1": (2, 20, 0)})
    assert found is not None
    assert [*found.by_replica.items()] == [
        ("replica-1", ReplicaFigures(requests=10.0, share=pytest.approx(2 / 9), prefix_hit_ratio=0.0)),
        ("replica-2", ReplicaFigures(requests=30.0, share=pytest.approx(6 / 9), prefix_hit_ratio=0.5)),
        ("replica-10", ReplicaFigures(requests=5.0, share=pytest.approx(1 / 9), prefix_hit_ratio=None)),
    ]
    assert found.counted_s == pytest.approx(5.0)
    assert (found.imbalance, found.prefix_hit_ratio) == (pytest.approx(2.0), pytest.approx(150 / 400))


@pytest.mark.covers("D8", "D9")
@pytest.mark.parametrize("lost", [(), (-1,)])
def test_there_are_no_shares_without_the_counters_of_one_replica(tmp_path: Path, lost: tuple[int, ...]) -> None:
    found = figures(tmp_path, {"replica-1": (2, 20, 10), "replica-2": lost})
    assert found is not None
    assert found.by_replica["replica-2"] == ReplicaFigures()
    assert found.by_replica["replica-1"].requests == 10.0
    assert (found.by_replica["replica-1"].share, found.imbalance, found.prefix_hit_ratio) == (None, None, None)


def test_counts_over_other_times_are_no_shares(tmp_path: Path) -> None:
    found = figures(tmp_path, {"replica-1": (2,), "replica-2": (2,)}, replica_2=4.0)
    assert found is not None
    assert found.counted_s == pytest.approx(2.0)
    assert [replica.share for replica in found.by_replica.values()] == [None, None]


def test_without_counters_there_are_no_replicas() -> None:
    assert replica_figures({}) is None
