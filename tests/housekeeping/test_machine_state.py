"""The state of a machine before a load: what it is read from, and what of it is worth a line."""

import os
import subprocess
import sys

import pytest

from seamark.housekeeping.machine_state import MachineState, other_load, state_of, turbo, warnings_before_load

QUIET = MachineState(
    others_ratio=0.05,
    steal_ratio=0.0,
    busiest={},
    governors=("performance",),
    turbo=True,
    swap_used_bytes=1 << 20,
    swap_total_bytes=1 << 30,
    synchronised=True,
)


def of(**changes):
    return MachineState(**(vars(QUIET) | changes))


def test_a_quiet_machine_and_one_that_tells_nothing_have_no_line():
    assert warnings_before_load(QUIET, several_machines=True) == ()
    assert warnings_before_load(MachineState(), several_machines=True) == ()


@pytest.mark.covers("E-FR09")
@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"others_ratio": 0.84, "busiest": {"python3": 1.5, "cc1": 0.2}},
            "Warning: other load: other processes use 84 % of the processors now (python3 1.5 cores, cc1 0.2 cores). "
            "Times vary with it. Measure when nothing else runs.",
        ),
        ({"steal_ratio": 0.2}, "and a hypervisor gives 20 % to other machines (steal)"),
        ({"governors": ("performance", "powersave")}, "Warning: CPU governor: performance, powersave."),
        ({"swap_used_bytes": 1 << 29}, "Warning: swap: 537 of 1,074 MB in use."),
    ],
)
def test_each_thing_that_spoils_numbers_is_one_line(changes, line):
    [warning] = warnings_before_load(of(**changes))
    assert line in warning
    assert "\n" not in warning


def test_an_unsynchronised_clock_matters_to_several_machines_only():
    assert warnings_before_load(of(synchronised=False)) == ()
    [warning] = warnings_before_load(of(synchronised=False), several_machines=True)
    assert "not synchronised" in warning


def test_the_kernels_files_are_read_and_missing_ones_are_unknown(tmp_path):
    assert state_of(tmp_path).governors == ()
    assert (state_of(tmp_path).turbo, state_of(tmp_path).swap_total_bytes) == (None, None)
    for core, word in enumerate(("powersave", "performance", "powersave")):
        file = tmp_path / f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor"
        file.parent.mkdir(parents=True)
        file.write_text(f"{word}\n")
    (tmp_path / "sys/devices/system/cpu/intel_pstate").mkdir()
    (tmp_path / "sys/devices/system/cpu/intel_pstate/no_turbo").write_text("0\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nSwapTotal:  1024 kB\nSwapFree:  24 kB\n")
    state = state_of(tmp_path)
    assert state.governors == ("performance", "powersave")
    assert (state.turbo, turbo(state).seen.partition(":")[0]) == (True, "on")
    assert (state.swap_used_bytes, state.swap_total_bytes) == (1000 << 10, 1024 << 10)


@pytest.mark.slow
def test_a_process_that_computes_is_seen_and_named_and_this_one_is_no_other():
    burner = subprocess.Popen([sys.executable, "-c", "import os\nwhile os.getppid() != 1: pass"])
    try:
        state = state_of(interval_s=1.0)
    finally:
        burner.kill()
        burner.wait()
    assert state.others_ratio is not None
    assert state.others_ratio > 0.02 / (os.cpu_count() or 1)
    assert 0 <= (state.steal_ratio or 0.0) <= 1
    assert other_load(state).seen.startswith("other processes use ")


def test_too_little_disk_is_a_line(tmp_path, monkeypatch):
    assert not [line for line in warnings_before_load(QUIET, results=tmp_path / "none") if "cannot" in line]
    monkeypatch.setattr("seamark.housekeeping.machine_state.FEW_BYTES", 1 << 62)
    [warning] = warnings_before_load(QUIET, results=tmp_path / "not" / "there")
    assert warning.startswith("Warning: disk space: ")
