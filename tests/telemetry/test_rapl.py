"""Energy counters on made-up trees with known joules. Not run on a machine that has them: these have none."""

import itertools
from pathlib import Path

import pytest

from seamark.telemetry.energy import Consumed, Counter, Rapl, after_load, domains, idle_power_w, why_unreadable

RANGE_UJ = 65_532_610_987


class Machine:
    """Two packages with cores and memory inside, and a platform's counter, as Intel's servers show them."""

    def __init__(self, root: Path, zones: dict[str, str]) -> None:
        self.root = root
        self.powercap = root / "sys/class/powercap"
        for zone, name in zones.items():
            folder = self.powercap / zone
            folder.mkdir(parents=True)
            (folder / "name").write_text(f"{name}\n")
            (folder / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
            self.set(zone, 0)

    def set(self, zone: str, microjoules: int) -> None:
        (self.powercap / zone / "energy_uj").write_text(f"{microjoules}\n")


INTEL = {
    "intel-rapl:0": "package-0",
    "intel-rapl:0:0": "core",
    "intel-rapl:0:1": "dram",
    "intel-rapl:1": "package-1",
    "intel-rapl:1:0": "dram",
    "intel-rapl:2": "psys",
    "intel-rapl-mmio:0": "package-0",
}


@pytest.fixture
def intel(tmp_path):
    return Machine(tmp_path, INTEL)


def joules(rapl: Rapl) -> dict[str, float]:
    return {reading.source: reading.value for reading in rapl.read()}


@pytest.mark.covers("E-MON02")
def test_packages_and_their_memory_are_read_and_nothing_that_they_contain_twice(intel):
    assert [domain.name for domain in domains(intel.root)] == ["package0", "dram0", "package1", "dram1"]
    assert why_unreadable(intel.root) is None


def test_dies_of_one_package_and_amds_package_without_memory_are_counted_each(tmp_path):
    amd = Machine(
        tmp_path, {"intel-rapl:0": "package-0-die-0", "intel-rapl:0:0": "core", "intel-rapl:1": "package-0-die-1"}
    )
    assert [domain.name for domain in domains(amd.root)] == ["package0die0", "package0die1"]


@pytest.mark.slow
@pytest.mark.covers("E-MON02")
def test_a_counter_that_wraps_around_loses_no_joule(intel):
    """100 W for 700 s, looked at every half second: more than the range of the counter."""
    clock = iter(k * 0.5 for k in range(100_000))
    at_s = [0.0]
    rapl = Rapl(intel.root, lambda: at_s[0])
    totals = []
    for k in range(1401):
        at_s[0] = next(clock)
        intel.set("intel-rapl:0", (60_000_000_000 + k * 50_000_000) % RANGE_UJ)
        totals.append(joules(rapl)["package0"])
    assert totals[0] == 0
    assert totals[-1] == pytest.approx(70_000)
    assert all(later > earlier for earlier, later in itertools.pairwise(totals))


def test_a_counter_that_may_have_wrapped_around_twice_begins_again(intel):
    at_s = [0.0]
    rapl = Rapl(intel.root, lambda: at_s[0])
    joules(rapl)
    at_s[0] = 1.0
    intel.set("intel-rapl:0", 100_000_000)
    assert joules(rapl)["package0"] == 100
    at_s[0] = 100.0
    intel.set("intel-rapl:0", 200_000_000)
    assert joules(rapl)["package0"] == 0, "a fall, which no window is summed up over"
    at_s[0] = 101.0
    intel.set("intel-rapl:0", 300_000_000)
    assert joules(rapl)["package0"] == 100


def test_only_a_long_gap_is_a_doubt():
    counter = Counter(range_j=65_532.0)
    assert counter.total_j(65_000, 0.0) == 0
    assert counter.total_j(100, 60.0) == pytest.approx(632)
    assert counter.total_j(200, 60.0 + 65.6) == 0


@pytest.mark.covers("E-MON02", "E-NFR04")
def test_a_counter_that_is_closed_to_us_is_told_with_its_remedy(intel, monkeypatch):
    closed = intel.powercap / "intel-rapl:1" / "energy_uj"
    read = Path.read_text

    def refuse(path: Path, *args: object, **more: object) -> str:  # root may read all files: the kernel's own refusal
        if path == closed:
            raise PermissionError(13, "Permission denied")
        return read(path, *args, **more)

    monkeypatch.setattr(Path, "read_text", refuse)
    assert "intel-rapl:1/energy_uj is not readable" in (why_unreadable(intel.root) or "")
    assert joules(Rapl(intel.root)) == {}
    told = after_load(Consumed(at_s=0.0, reason="not in a Slurm job"), intel.root)
    assert told.package.counters == ()
    assert "ask the site" in (told.package.reason or "")


def test_a_machine_without_counters_says_why_and_gives_nothing(tmp_path):
    assert "virtual machine" in (why_unreadable(tmp_path) or "")
    assert joules(Rapl(tmp_path)) == {}


@pytest.mark.covers("E-MON02")
def test_idle_power_is_that_of_the_time_in_which_nothing_was_sent(tmp_path):
    telemetry = tmp_path / "telemetry.csv"
    rows = ["at_unix_s,source,name,value,unit"]
    for at in range(100, 140):
        idle = at <= 120
        rows += [f"{at},package0,energy_j,{50 * at if idle else 50 * 120 + 200 * (at - 120)},J"]
        rows += [f"{at},dram0,energy_j,{5 * at},J", f"{at},gpu0,power_w,{60 if idle else 400},W"]
    telemetry.write_text("\n".join(rows) + "\n")
    assert idle_power_w(telemetry, (105.0, 120.0)) == {"package": pytest.approx(55), "gpu": pytest.approx(60)}
    assert idle_power_w(telemetry, None) == {}
    assert idle_power_w(tmp_path / "none.csv", (105.0, 120.0)) == {}
