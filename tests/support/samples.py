"""Makes the files that a load leaves, with requests whose times are known. Used by tests of metrics and reports."""

import json
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seamark.analysis.checks import CheckedTrial
from seamark.analysis.metrics.distribution import TimeDistribution
from seamark.analysis.metrics.document import derive_metrics
from seamark.analysis.metrics.window import Window
from seamark.analysis.metrics.window_counts import WindowCounts
from seamark.analysis.trial_view import TrialView
from seamark.model.results.load_record import LoadRecord
from seamark.model.results.times import BoundedDistribution
from seamark.model.results.trial_metrics import Errors, RequestCounts, SteadyVerdict, Throughput, TrialMetrics
from seamark.model.sample import MISSING_NS, SAMPLE
from seamark.model.scenario import Slo
from seamark.model.trial import Trial
from seamark.storage.codec import decode, encode
from seamark.storage.paths import TrialFolder

ARROW = {"<i8": pa.int64(), "<i4": pa.int32(), "<i2": pa.int16(), "|i1": pa.int8()}


def samples_of(
    due_s: Any,
    sent_s: Any = None,
    last_s: Any = None,
    *,
    first_s: Any = None,
    failure: Any = 0,
    units: Any = 1,
    answer_s: Any = None,
    first_units: Any = 0,
    uncounted: Any = 0,
    bytes_sent: Any = 0,
    bytes_received: Any = 0,
    kind: Any = 0,
    retries: Any = 0,
) -> np.ndarray:
    """Raw samples from times in seconds; NaN is a missing time, and `sent_s` is `due_s` when not given."""
    due_s = np.asarray(due_s, dtype=float)
    rows = np.zeros(len(due_s), dtype=SAMPLE)
    rows["index"] = np.arange(len(due_s))
    times = {"due_ns": due_s, "sent_ns": due_s if sent_s is None else sent_s, "last_ns": last_s, "first_ns": first_s}
    times["answer_ns"] = answer_s
    for name, values in times.items():
        values = np.broadcast_to(np.asarray(np.nan if values is None else values, dtype=float), len(due_s))
        known = np.isfinite(values)
        rows[name] = np.where(known, np.round(np.where(known, values, 0) * 1e9).astype("<i8"), MISSING_NS)
    rows["failure"], rows["units"], rows["kind"] = failure, units, kind
    rows["first_units"], rows["uncounted"] = first_units, uncounted
    rows["retries"] = retries
    rows["bytes_sent"], rows["bytes_received"] = bytes_sent, bytes_received
    return rows


def write_samples(path: Path, rows: np.ndarray, *, config_hash: str = "cafe", row_group: int = 1 << 17) -> Path:
    """Write raw samples as a load does: our columns, null for missing times, our metadata."""
    columns = {}
    for name in SAMPLE.names:
        kind = ARROW[SAMPLE[name].str]
        missing = rows[name] == MISSING_NS if name.endswith("_ns") else None
        columns[name] = pa.array(np.ascontiguousarray(rows[name]), type=kind, mask=missing)
    about = {"config_hash": config_hash, "trial": "t", "unit": "reply", "kinds": ["get"], "schema_version": 1}
    table = pa.table(columns).replace_schema_metadata({"seamark": json.dumps(about)})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=row_group, compression="zstd", write_page_checksum=True)
    return path


def write_chunks(path: Path, rows: list[tuple[int, float, int]]) -> None:
    """Write chunks of (index, at_s, events) as a load does: in the order of their times."""
    rows = sorted(rows, key=lambda row: row[1])
    columns = {
        "index": pa.array([index for index, _, _ in rows], pa.int64()),
        "at_ns": pa.array([round(at_s * 1e9) for _, at_s, _ in rows], pa.int64()),
        "events": pa.array([events for _, _, events in rows], pa.int32()),
    }
    pq.write_table(pa.table(columns), path, row_group_size=7)


def write_telemetry(path: Path, rows: Sequence[tuple[float, str, str, float, str]]) -> Path:
    """Write telemetry rows of (at_s, source, name, value, unit)."""
    names = ("at_s", "source", "name", "value", "unit")
    columns = list(zip(*rows, strict=True)) if rows else [[]] * 5
    pq.write_table(pa.table(dict(zip(names, map(list, columns), strict=True))), path)
    return path


def a_trial(
    settings: Mapping[str, Any] | None = None, *, slos: tuple[Slo, ...] = (), repetition: int = 1, **other: Any
) -> Trial:
    """A trial of a null service; `settings` over closed loop of one for 10 s without warm-up."""
    defaults = {"pattern": "closed", "concurrency": 1, "duration_s": 10.0, "warmup_s": 0.0, "timeout_s": 30.0}
    fields = {
        "id": f"d-1--w-1--r{repetition}",
        "trial_id": f"00000000-0000-5000-8000-{repetition:012d}",
        "deployment": "d-1",
        "workload": "w-1",
        "component": "storage",
        "service": "fileio",
        "changed": dict(settings or {}),
        "repetition": repetition,
        "block": repetition,
        "position": 1,
        "seed": 1,
        "config_hash": "cafe",
        "group": other.get("service", "fileio"),
    }
    return Trial(settings=defaults | dict(settings or {}), slos=slos, **(fields | other))


def a_load(**changes: Any) -> LoadRecord:
    """The record of a load that went well; `changes` are as JSON has them."""
    times = {"started_at": "2026-01-01T00:00:00+00:00", "finished_at": "2026-01-01T00:00:10+00:00"}
    return decode({"status": "ok", "unit": "reply", "kinds": ["get"], **times, **changes}, LoadRecord)


def metrics_of(trial: Trial, load: LoadRecord, folder: Any, **facts: Any) -> dict[str, Any]:
    """The metrics of a trial as JSON has them; `facts` are those of `derive_metrics`."""
    document: dict[str, Any] = encode(derive_metrics(trial, load, folder, **facts).metrics)
    return document


def codes(document: Any) -> set[str]:
    """The codes of the reasons of a trial or a treatment, as JSON has it."""
    return {reason["code"] for reason in document["reasons"]}


def a_metrics(**fields: Any) -> TrialMetrics:
    """Metrics of a good trial with these fields, the others as little as can be."""
    least: dict[str, Any] = {
        **dict.fromkeys(("trial_id", "trial", "scenario", "component", "service"), "t"),
        **dict.fromkeys(("timestamp", "category", "reason")),
        **{name: {} for name in ("config", "resource", "quality", "telemetry")},
        **dict.fromkeys(("slos", "reasons"), ()),
        "status": "ok",
        "throughput": Throughput(value=1.0, unit="replies_per_s"),
        "counts": RequestCounts(ok=1, failed=0, lost=0),
        "errors": Errors(rate=0.0),
        "verdict": "VALID",
    }
    return TrialMetrics(**least | fields)


def a_view(trial: Trial, metrics: TrialMetrics | None = None, view: TrialView | None = None, **records: Any) -> Any:
    """A trial with these records, as if they had been read from its folder, which is not there."""
    view = view or TrialView(trial=trial, folder=TrialFolder(root=Path("none")))
    return as_read(view, **records | ({} if metrics is None else {"_metrics": metrics}))


def as_read(record: Any, **values: Any) -> Any:
    """A copy of what reads its files when it is asked, which has read these values."""
    found = copy(record)
    vars(found).update(values)
    return found


def changed(record: Any, changes: Mapping[str, Any]) -> Any:
    """A copy of a record with other values, each as JSON has it, at a dotted path such as `metrics.errors.rate`."""
    for path, value in changes.items():
        name, _, rest = path.partition(".")
        kind = get_type_hints(type(record), include_extras=True)[name]
        part = changed(getattr(record, name), {rest: value}) if rest else decode(value, kind)
        record = replace(record, **{name: part})
    return record


def a_checked_trial(**settings: Any) -> CheckedTrial:
    """A load of 10 s with five users or connections and 5000 good replies: nothing is to be said against it."""
    response = TimeDistribution()
    response.add(np.full(10_000, 10_000_000))
    counts: dict[str, Any] = dict.fromkeys(("rows", "due", "sent", "ok", "replies", "ended", "stays"), 5000)
    counts |= {"window": Window(start_ns=0, end_ns=10**10), "stay_ns": 5 * 10**10, "response": response}
    return CheckedTrial(
        trial=a_trial({"concurrency": 5} | settings),
        load=a_load(),
        metrics=a_metrics(
            resource={"cpu_util": 0.4},
            service_time_ms=BoundedDistribution(p99=10.0),
            achieved_rps=500.0,
            concurrency_mean=5.0,
            steady_state=SteadyVerdict(steady=True),
        ),
        counts=WindowCounts(**counts),
    )
