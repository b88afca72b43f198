"""The executions of a log as rows, and the mistakes in their own fields."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from seamark.errors import did_you_mean
from seamark_simulate.simulation.world import COMPLETED

TOLERANCE_S = 1e-6
"""Times of a log are sums of rounded numbers, and other programs print six digits."""
TEXTS = ("request_id", "workflow_id", "node_id", "model_name")
TIMES = ("start_time", "end_time", "execution_time", "estimated_time")
EXTRA_TIMES = ("ready_time", "waiting_time", "switch_time", "load_time", "transfer_time")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One execution of a log whose fields are right. It holds its GPUs from `taken_s`, when its model is fetched."""

    place: str
    request_id: str
    workflow_id: str
    node_id: str
    model: str
    gpu_ids: tuple[int, ...]
    start_s: float
    end_s: float
    fetch_s: float | None
    load_s: float | None
    transfer_s: float = 0.0
    outcome: str = COMPLETED

    @property
    def taken_s(self) -> float:
        """When it took its GPUs; its start, in a log without the times of fetches."""
        return self.start_s - (self.fetch_s or 0.0) - self.transfer_s

    @property
    def is_completed(self) -> bool:
        """Whether it did its work."""
        return self.outcome == COMPLETED


def gpu_count(value: Any) -> int | None:
    """Return the number of GPUs, which a log gives as a list of ids, or as such."""
    return len(value) if isinstance(value, list) else value if type(value) is int else None


def has_any_windows(summary: Mapping[str, Any]) -> bool:
    """Return whether the GPUs of a node need not be consecutive on the machine of a log."""
    machine = summary.get("machine")
    return isinstance(machine, dict) and machine.get("windows") == "any"


def row_of(place: str, part: Any, gpus: int | None, any_windows: bool, note: Callable[[str], None]) -> Row | None:
    if not isinstance(part, dict):
        note(f"{place}: is not an object")
        return None
    wrong = [*_wrong_fields(place, part)]
    gpu_ids = part.get("gpu_ids", [part.get("gpu_id")])
    if not isinstance(gpu_ids, list) or not gpu_ids or not all(type(gpu) is int for gpu in gpu_ids):
        wrong.append(f"{place}: gpu_ids is not a list of GPU ids")
    if wrong:
        for line in wrong:
            note(line)
        return None
    name = f"{place} ({part['request_id']}/{part['node_id']})"
    _check_gpus(name, part["gpu_id"], gpu_ids, gpus, any_windows, note)
    start_s, end_s, execution_s = part["start_time"], part["end_time"], part["execution_time"]
    if start_s < -TOLERANCE_S:
        note(f"{name}: start_time {start_s:g} is before 0")
    if end_s < start_s:
        note(f"{name}: it ends at {end_s:g} s, before its start at {start_s:g} s")
    elif not equal(end_s - start_s, execution_s, end_s):
        note(f"{name}: execution_time is {execution_s:g} s, but from start to end are {end_s - start_s:g} s")
    fetch = [part[key] for key in ("switch_time", "load_time") if key in part]
    waited = [part[key] for key in ("ready_time", "waiting_time") if key in part]
    transfer_s = part.get("transfer_time", 0.0)
    if fetch and len(waited) == 2 and not equal(sum(waited) + sum(fetch) + transfer_s, start_s, end_s):
        note(f"{name}: ready_time, waiting_time, switch_time and load_time do not add up to start_time {start_s:g}")
    return Row(
        place=name,
        request_id=part["request_id"],
        workflow_id=part["workflow_id"],
        node_id=part["node_id"],
        model=part["model_name"],
        gpu_ids=tuple(gpu_ids),
        start_s=start_s,
        end_s=end_s,
        fetch_s=sum(fetch) if fetch else None,
        load_s=part.get("load_time"),
        transfer_s=transfer_s,
        outcome=part.get("outcome", COMPLETED),
    )


def _wrong_fields(place: str, part: Mapping[str, Any]) -> Iterable[str]:
    """Yield a line for each field that is missing or of the wrong type."""
    for key in (*TEXTS, "gpu_id", *TIMES):
        if key not in part:
            guess = did_you_mean(key, set(part) - {*TEXTS, *TIMES, *EXTRA_TIMES})
            yield f"{place}: the field '{key}' is missing.{guess}".removesuffix(".")
        elif key in TEXTS and not isinstance(part[key], str):
            yield f"{place}: {key} is not text"
    for key in (*TIMES, *EXTRA_TIMES):
        value = part.get(key, 0)
        if type(value) not in (int, float) or not math.isfinite(value):
            yield f"{place}: {key} is {value!r}, not a number of seconds"
        elif value < -TOLERANCE_S and key != "start_time":
            yield f"{place}: {key} is {value:g}, below 0"
    if not isinstance(part.get("outcome", ""), str):
        yield f"{place}: outcome is not text"
    if "gpu_id" in part and type(part["gpu_id"]) is not int:
        yield f"{place}: gpu_id is not a GPU id"


def _check_gpus(
    name: str, gpu_id: int, gpu_ids: Sequence[int], gpus: int | None, any_windows: bool, note: Callable[[str], None]
) -> None:
    if gpu_id != gpu_ids[0]:
        note(f"{name}: gpu_id {gpu_id} is not the first of gpu_ids {list(gpu_ids)}")
    if any_windows and len(set(gpu_ids)) < len(gpu_ids):
        note(f"{name}: a GPU is named twice in {list(gpu_ids)}")
    if not any_windows and any(second != first + 1 for first, second in pairwise(gpu_ids)):
        note(f"{name}: the GPUs {list(gpu_ids)} are not consecutive")
    outside = [gpu for gpu in gpu_ids if gpu < 0 or (gpus is not None and gpu >= gpus)]
    if outside:
        note(f"{name}: there is no GPU {outside[0]}" + ("" if gpus is None else f" among {gpus}"))


def equal(first: float, second: float, scale: float) -> bool:
    """Return whether two times are equal but for the rounding of sums of that size."""
    return abs(first - second) <= TOLERANCE_S + 1e-9 * abs(scale)
