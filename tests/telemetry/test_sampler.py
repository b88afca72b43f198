"""The sampling loop: its rate, its file, its own cost, and that no monitor can end it."""

import csv
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from seamark.telemetry.sampler import Reading, Sampler, Telemetry


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class Counts:
    """Gives 1, 2, 3, ..."""

    def __init__(self) -> None:
        self.seen = 0

    def read(self) -> Iterator[Reading]:
        self.seen += 1
        yield Reading(source="host", name="seen", value=float(self.seen), unit="")


class Breaks:
    """Fails every time, after half of its readings."""

    def read(self) -> Iterator[Reading]:
        yield Reading(source="host", name="half", value=1.0, unit="")
        raise RuntimeError("the sensor fell off")


class Slow(Counts):
    """Takes as long as two and a half intervals."""

    def read(self) -> Iterator[Reading]:
        time.sleep(0.25)
        return super().read()


@pytest.mark.slow
@pytest.mark.covers("E-MON01")
def test_samples_come_at_the_interval_and_their_cost_with_them(tmp_path: Path):
    sampler = Sampler([Counts()], tmp_path / "t.csv", 0.1, print)
    sampler.start()
    time.sleep(1.05)
    sampler.stop()
    written = rows(tmp_path / "t.csv")
    at = [float(row["at_unix_s"]) for row in written if row["name"] == "seen"]
    assert 5 <= len(at) <= 12
    assert at == sorted(at)
    cost = [float(row["value"]) for row in written if row["name"] == "cpu_s"]
    assert cost == sorted(cost)
    assert 0 < cost[-1] < 1
    assert {row["source"] for row in written if row["name"] == "overhead_ratio"} == {"sampler"}


@pytest.mark.slow
def test_a_monitor_that_breaks_is_said_once_and_stops_no_other(tmp_path: Path):
    said: list[tuple[str, str]] = []
    sampler = Sampler(
        [Breaks(), Counts()],
        tmp_path / "t.csv",
        0.05,
        lambda event, **details: said.append((event, details["error"])),
    )
    sampler.start()
    time.sleep(0.5)
    sampler.stop()
    assert len([row for row in rows(tmp_path / "t.csv") if row["name"] == "seen"]) >= 3
    assert said == [("monitor-failed", "RuntimeError('the sensor fell off')")]


@pytest.mark.slow
def test_a_slow_monitor_misses_samples_and_does_not_pile_them_up(tmp_path: Path):
    sampler = Sampler([Slow()], tmp_path / "t.csv", 0.1, print)
    sampler.start()
    time.sleep(1.2)
    sampler.stop()
    at = [float(row["at_unix_s"]) for row in rows(tmp_path / "t.csv") if row["name"] == "seen"]
    assert 2 <= len(at) <= 5
    assert all(later - earlier > 0.2 for earlier, later in pairwise(at[:-1]))


def test_a_file_that_cannot_be_written_ends_the_sampling_and_nothing_else(tmp_path: Path):
    said: list[str] = []
    (tmp_path / "t.csv").mkdir()
    sampler = Sampler([Counts()], tmp_path / "t.csv", 0.1, lambda event, **details: said.append(event))
    sampler.start()
    sampler.stop()
    assert said == ["telemetry-ended"]


def test_a_torn_line_is_closed_and_the_header_written_once(tmp_path: Path):
    path = tmp_path / "t.csv"
    for torn in (b"1.0,host,half of a li", b""):
        telemetry = Telemetry(path)
        telemetry.append(2.5, [Reading(source="host", name='a{b="c,d"}', value=12345678901234.0, unit="bytes")])
        telemetry.close()
        with path.open("ab") as file:
            file.write(torn)
    lines = path.read_text().splitlines()
    assert lines[0] == "at_unix_s,source,name,value,unit"
    assert lines[1] == lines[3] == '2.500000,host,"a{b=""c,d""}",12345678901234,bytes'
    assert lines[2] == "1.0,host,half of a li"
