"""Figures of replicas from their own counters."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seamark.analysis.metrics.replicas import replicas_of
from seamark.analysis.metrics.telemetry import summarise_telemetry
from seamark.model.results.replicas import PREFIX_HITS, PREFIX_QUERIES, REQUESTS, ReplicaFigures


@pytest.mark.covers("D8")
def test_shares_and_hits_are_those_of_the_window_in_the_order_of_the_numbers(tmp_path: Path) -> None:
    rates = {"replica-2": (6, 60, 30), "replica-10": (1, 0, 0), "replica-1": (2, 20, 0)}
    names = (REQUESTS, PREFIX_QUERIES, PREFIX_HITS)
    rows = [
        {"at_s": at, "source": source, "name": name, "value": 100 + rate * at, "unit": "total"}
        for source, own in rates.items()
        for name, rate in zip(names, own, strict=True)
        for at in (0.0, 4.0, 10.0)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "telemetry.parquet")
    found = replicas_of(summarise_telemetry(tmp_path / "telemetry.parquet", 2.0, 7.0))
    assert found is not None
    assert found.each == (
        ReplicaFigures(name="replica-1", requests=10.0, share=pytest.approx(2 / 9), prefix_hit_ratio=0.0),
        ReplicaFigures(name="replica-2", requests=30.0, share=pytest.approx(6 / 9), prefix_hit_ratio=0.5),
        ReplicaFigures(name="replica-10", requests=5.0, share=pytest.approx(1 / 9), prefix_hit_ratio=None),
    )
    assert found.counted_s == pytest.approx(5.0)
    assert (found.imbalance, found.prefix_hit_ratio) == (pytest.approx(2.0), pytest.approx(150 / 400))


def test_without_counters_there_are_no_replicas() -> None:
    assert replicas_of({}) is None
