"""Lanes side by side: devices are never overfull, time is that of list scheduling, a killed one costs its unit."""

import heapq
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path

import lane_process
import pytest

from seamark.dispatch.claim_list import ClaimList
from seamark.dispatch.order import Unit

LENGTHS_S = (1.5, 0.7, 2.3, 1.0, 1.9, 0.8, 1.3, 2.1, 0.9, 1.7, 0.7, 1.4)
CPUS = "cpu=0,1"


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A unit as its lane reported it."""

    unit: str
    device: str
    claimed_s: float
    began_s: float
    ended_s: float


def listed(root: Path, lengths_s: Sequence[float] = LENGTHS_S) -> Path:
    ClaimList.make(
        root / "units",
        lambda: [
            Unit(id=f"u{at}", estimated_s=length_s, levels={"model": "abc"[at % 3]})
            for at, length_s in enumerate(lengths_s)
        ],
    )
    return root / "units"


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's lanes do not wait for lanes of other tests."""
    (tmp_path / "locks").mkdir()
    monkeypatch.setenv("SEAMARK_RUNTIME_DIR", str(tmp_path / "locks"))


@contextmanager
def lanes(
    units: Path, count: int, order: str = "all", *, devices: str = CPUS, per_device: int = 2, run: str = "run"
) -> Iterator[list["subprocess.Popen[str]"]]:
    """Start lanes, and let them begin together."""
    command = [sys.executable, lane_process.__file__, str(units), order, devices, str(per_device), run]
    with ExitStack() as stack:
        started = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)
        ]
        for lane in started:
            stack.enter_context(lane)
            stack.callback(lane.kill)
            assert lane.stdout is not None
            assert lane.stdout.readline() == "ready\n"
        for lane in started:
            assert lane.stdin is not None
            lane.stdin.write("go\n")
            lane.stdin.flush()
        yield started


def reports(output: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def ran(outputs: Sequence[str]) -> list[Ran]:
    return [
        Ran(
            unit=str(each["unit"]),
            device=str(each["device"]),
            claimed_s=float(str(each["claimed_unix_s"])),
            began_s=float(str(each["began_unix_s"])),
            ended_s=float(str(each["ended_unix_s"])),
        )
        for output in outputs
        for each in reports(output)
        if "began_unix_s" in each
    ]


def most_at_once(units: Sequence[Ran]) -> int:
    return max(sum(other.began_s <= each.began_s < other.ended_s for other in units) for each in units)


def list_scheduled_s(lengths_s: Sequence[float], places: int) -> float:
    """Graham's list scheduling: each next length goes to the place that falls free first."""
    free_s = [0.0] * places
    for length_s in lengths_s:
        heapq.heapreplace(free_s, free_s[0] + length_s)
    return max(free_s)


def by_hand(order: str, length_s: dict[str, float]) -> float:
    """Return the time of twelve units on four places by an order."""
    in_order = [length_s[f"u{at}"] for at in range(12)]
    if order == "longest_first":
        planned = sorted(range(12), key=lambda at: -LENGTHS_S[at])
        return list_scheduled_s([length_s[f"u{at}"] for at in planned], 4)
    if order == "barrier: 3":
        return sum(max(in_order[at : at + 3]) for at in range(0, 12, 3))
    if order == "window: 3":
        return list_scheduled_s(in_order, 3)
    if order == "unroll: [model]":
        return sum(list_scheduled_s(in_order[at::3], 4) for at in range(3))
    return list_scheduled_s(in_order, 4)


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.covers("B1", "B7", "D5")
@pytest.mark.parametrize(
    "order",
    [
        "longest_first",
        *(
            pytest.param(name, marks=pytest.mark.sweep)
            for name in ("unroll: [model]", "all", "barrier: 3", "window: 3")
        ),
    ],
)
def test_twelve_units_on_two_devices_take_the_time_of_list_scheduling(order: str, tmp_path: Path) -> None:
    with lanes(listed(tmp_path), 4, order) as started:
        made = ran([lane.communicate(timeout=120)[0] for lane in started])
    assert sorted(each.unit for each in made) == sorted(f"u{at}" for at in range(12))
    assert [lane.returncode for lane in started] == [0] * 4
    for _, on_one in groupby(sorted(made, key=lambda each: each.device), key=lambda each: each.device):
        assert most_at_once(list(on_one)) <= 2
    took_s = max(each.ended_s for each in made) - min(each.claimed_s for each in made)
    planned_s = by_hand(order, {each.unit: each.ended_s - each.claimed_s for each in made})
    assert took_s == pytest.approx(planned_s, rel=0.05)


@pytest.mark.slow
@pytest.mark.covers("B2", "B7")
def test_a_killed_lane_costs_its_unit_alone_and_frees_its_device(tmp_path: Path) -> None:
    units = listed(tmp_path, [0.3] * 6)
    with lanes(units, 2, per_device=1) as started:
        assert started[0].stdout is not None
        [killed] = reports("".join(islice(started[0].stdout, 2)))
        started[0].kill()
        others = reports(started[1].communicate(timeout=60)[0])
    begun = [str(each["unit"]) for each in others if "sees" in each]
    every = [f"u{at}" for at in range(6)]
    assert sorted([str(killed["unit"]), *begun]) == sorted([*every, str(killed["unit"])])
    assert ClaimList.open(units).ended()
    with lanes(listed(tmp_path / "next", [0.3] * 2), 2, per_device=1, run="next") as started:
        made = ran([lane.communicate(timeout=60)[0] for lane in started])
    assert {each.device for each in made} == {"cpu 0", "cpu 1"}, "the device of the killed lane is free"


@pytest.mark.slow
@pytest.mark.covers("B7")
def test_two_runs_share_no_device(tmp_path: Path) -> None:
    first, second = listed(tmp_path / "first", [0.3] * 6), listed(tmp_path / "second", [0.3] * 6)
    with lanes(first, 2, run="first") as one, lanes(second, 2, run="second") as two:
        made = {
            "first": ran([lane.communicate(timeout=60)[0] for lane in one]),
            "second": ran([lane.communicate(timeout=60)[0] for lane in two]),
        }
    assert [len(units) for units in made.values()] == [6, 6]
    for own in made["first"]:
        for other in made["second"]:
            together = own.began_s < other.ended_s and other.began_s < own.ended_s
            assert not (together and own.device == other.device)


@pytest.mark.slow
@pytest.mark.covers("B8")
def test_a_child_prints_exactly_one_device(tmp_path: Path) -> None:
    with lanes(listed(tmp_path / "cpu", [0.2] * 4), 2, per_device=1) as started:
        seen = [each for lane in started for each in reports(lane.communicate(timeout=60)[0]) if "sees" in each]
    assert len(seen) == 4
    for each in seen:
        cpu = int(str(each["device"]).removeprefix("cpu "))
        device = json.dumps({"kind": "cpu", "id": str(cpu), "slot": 0, "shared": False})
        assert each["sees"] == {
            "cpus": [cpu],
            "CUDA_VISIBLE_DEVICES": None,
            "OMP_NUM_THREADS": "1",
            "SEAMARK_DEVICE": device,
        }
    with lanes(listed(tmp_path / "gpu", [0.2] * 4), 2, devices="gpu=6,7", per_device=1) as started:
        seen = [each for lane in started for each in reports(lane.communicate(timeout=60)[0]) if "sees" in each]
    for each in seen:
        sees = each["sees"]
        assert isinstance(sees, dict)
        assert f"gpu {sees['CUDA_VISIBLE_DEVICES']}" == each["device"]
    assert {each["device"] for each in seen} == {"gpu 6", "gpu 7"}
