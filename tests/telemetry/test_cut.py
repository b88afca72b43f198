"""A trial's share of the telemetry."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from seamark.model.results.load_record import LoadRecord
from seamark.storage.paths import TrialFolder
from seamark.telemetry.cut import BLOCK_BYTES, _lines, cut, cut_telemetry, load_window

HEADER = "at_unix_s,source,name,value,unit\n"
EPOCH_S = 1_700_000_000.0


def write(path: Path, *lines: str) -> Path:
    path.write_text(HEADER + "".join(f"{line}\n" for line in lines))
    return path


def test_rows_of_both_files_within_the_load_are_kept_in_order_of_time(tmp_path: Path):
    server = write(
        tmp_path / "telemetry.csv",
        f"{EPOCH_S - 0.1},host,cpu_ratio,0.1,ratio",
        f"{EPOCH_S},host,cpu_ratio,0.2,ratio",
        f'{EPOCH_S + 2},service,"up{{a=""b,c""}}",3,',
        f"{EPOCH_S + 4.5},host,cpu_ratio,0.9,ratio",
    )
    client = write(tmp_path / "client.csv", f"{EPOCH_S + 1},client,rss_bytes,12345678901,bytes")
    table = cut([server, client], EPOCH_S, 4.0)
    assert table.to_pylist() == [
        {"at_s": 0.0, "source": "host", "name": "cpu_ratio", "value": 0.2, "unit": "ratio"},
        {"at_s": 1.0, "source": "client", "name": "rss_bytes", "value": 12345678901.0, "unit": "bytes"},
        {"at_s": 2.0, "source": "service", "name": 'up{a="b,c"}', "value": 3.0, "unit": ""},
    ]


@pytest.mark.covers("E-NFR04")
def test_torn_and_damaged_lines_cost_nothing_but_themselves(tmp_path: Path):
    file = write(tmp_path / "telemetry.csv", f"{EPOCH_S + 1},host,threads,5,threads")
    damage = [b"170000000", b"1700000001.5,host,cut sh", b"\0\0\0\0", b"\xff\xfe,\xff", b"1700000001,host,a,x,y", b""]
    file.write_bytes(file.read_bytes() + b"\n".join(damage) + b"\n1700000002,host,threads,6,threads")
    assert [row["value"] for row in cut([file, tmp_path / "missing.csv"], EPOCH_S, 9.0).to_pylist()] == [5.0, 6.0]


def test_a_step_back_of_the_wall_clock_loses_no_row(tmp_path: Path):
    times = (1.0, 2.0, 3600.0, 2.5, 3.0)
    file = write(tmp_path / "telemetry.csv", *(f"{EPOCH_S + at},host,a,{at},s" for at in times))
    assert [row["at_s"] for row in cut([file], EPOCH_S, 9.0).to_pylist()] == [1.0, 2.0, 2.5, 3.0]


def long_file(path: Path, steps: Mapping[int, float] | None = None) -> Path:
    """An hour of ten readings a second, some of them damaged; at some readings the clock is set by a step."""
    step_s, lines = 0.0, []
    for number in range(36_000):
        step_s += (steps or {}).get(number, 0.0)
        at = f"{EPOCH_S + number / 10 + step_s:.6f}"
        lines.append(at[:9] if number % 997 == 0 else f"{at},host,cpu_ratio,{number},ratio")
    return write(path, *lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps",
    [{}, {9_000: -600.0}, {9_000: 600.0}, {9_000: 3600.0, 9_001: -3600.0}, {20_000: -1500.0, 20_001: 1500.0}],
    ids=["none", "back", "forth", "forth and back", "back and forth"],
)
def test_a_part_of_a_long_file_has_the_rows_that_a_reader_of_all_of_it_finds(tmp_path: Path, steps):
    file = long_file(tmp_path / "telemetry.csv", steps)
    assert file.stat().st_size > 5 * BLOCK_BYTES
    read = [line.split(",") for line in file.read_text().splitlines() if line.endswith(",ratio")]
    rows = [(float(at), float(value)) for at, _, _, value, _ in read]
    for start_s in (0.0, 333.3, 895.0, 1500.0, 2000.0, 3590.0, 9000.0):
        begin_s = EPOCH_S + start_s
        inside = sorted((at - begin_s, value) for at, value in rows if 0.0 <= at - begin_s <= 10.0)
        table = cut([file], begin_s, 10.0)
        assert list(zip(table["at_s"].to_pylist(), table["value"].to_pylist(), strict=True)) == inside


def test_a_trial_reads_its_part_of_a_long_file_and_not_the_rest(tmp_path: Path):
    file = long_file(tmp_path / "telemetry.csv")
    with file.open("rb") as opened:
        lines = sum(1 for _ in _lines(opened, EPOCH_S + 1800, 10.0))
    assert 100 < lines < 0.5 * 36_000


def test_a_load_is_as_long_as_planned_or_as_it_lasted():
    load = LoadRecord(status="ok", epoch_unix_ns=int(EPOCH_S * 1e9), warmup_s=1.0, duration_s=10.0)
    assert load_window(replace(load, finished_at="2023-11-14T22:14:00+00:00")) == (EPOCH_S, 11.0)
    assert load_window(replace(load, finished_at="2023-11-14T23:13:24+01:00")) == (EPOCH_S, 4.0)
    assert load_window(LoadRecord(status="failed")) == (0.0, 0.0)


@pytest.mark.covers("E-MON03")
def test_a_trial_gets_its_telemetry_twice_and_alike_even_when_there_is_none(tmp_path: Path):
    folder = TrialFolder(root=tmp_path / "trial")
    server = write(tmp_path / "telemetry.csv", f"{EPOCH_S + 1},host,cpu_ratio,0.25,ratio")
    load = LoadRecord(status="ok", epoch_unix_ns=int(EPOCH_S * 1e9), warmup_s=0.0, duration_s=2.0)
    cut_telemetry(server, folder.client_telemetry, load, folder)
    assert pq.read_table(folder.telemetry).to_pylist()[0]["value"] == 0.25
    assert folder.telemetry_csv.read_text().splitlines()[1:] == ['1,"host","cpu_ratio",0.25,"ratio"']
    cut_telemetry(server, folder.client_telemetry, LoadRecord(status="ok"), folder)
    assert pq.read_table(folder.telemetry).num_rows == 0
    assert len(folder.telemetry_csv.read_text().splitlines()) == 1
