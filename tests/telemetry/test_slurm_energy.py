"""What Slurm says of energy, with stand-ins for its programs. Not run on a Slurm that gathers it."""

import os

import pytest

from seamark.model.results.load_record import NodeEnergy
from seamark.telemetry.energy import Consumed, consumed, spent

CONFIG = "AcctGatherEnergyType    = acct_gather_energy/ipmi\nAcctGatherNodeFreq      = 3 sec\n"
JOB = {"SLURM_JOB_ID": "71"}
STEPS = "71.extern|9000\n71.batch|1200\n71.0|700\n"


@pytest.fixture
def say(tmp_path, monkeypatch):
    """Put a program of that name first on PATH, that prints a text when it is asked for energy or configuration."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def put(name: str, text: str, code: int = 0) -> None:
        (tmp_path / name).write_text(
            f"#!/bin/sh\necho \"$@\" > {tmp_path}/{name}.asked\ncat <<'E'\n{text}E\nexit {code}\n"
        )
        (tmp_path / name).chmod(0o755)

    return put


@pytest.mark.covers("E-MON02", "E-MR08")
def test_the_energy_of_our_own_step_is_taken_and_no_sum_over_steps_of_one_node(say, tmp_path):
    say("scontrol", CONFIG)
    say("sstat", STEPS)
    seen = consumed(JOB)
    assert (seen.joules, seen.step, seen.every_s, seen.reason) == (1200, "71.batch", 3.0, None)
    assert consumed({**JOB, "SLURM_STEP_ID": "0"}).joules == 700
    assert "--jobs=71" in (tmp_path / "sstat.asked").read_text()
    assert "ConsumedEnergyRaw" in (tmp_path / "sstat.asked").read_text()


def test_where_sstat_has_no_figure_sacct_is_asked(say):
    say("scontrol", CONFIG)
    say("sstat", "71.batch|\n71.batch|0\n")
    say("sacct", "71|5000\n71.batch|1500\n")
    assert consumed(JOB).joules == 1500


@pytest.mark.parametrize(
    ("config", "steps", "job", "why"),
    [
        (CONFIG, STEPS, {}, "not in a Slurm job"),
        ("AcctGatherEnergyType = (null)\n", STEPS, JOB, "AcctGatherEnergyType is none"),
        ("AcctGatherEnergyType = acct_gather_energy/none\n", STEPS, JOB, "AcctGatherEnergyType is none"),
        (CONFIG, "", JOB, "neither sstat nor sacct"),
    ],
)
def test_what_is_not_known_has_its_reason(say, config, steps, job, why):
    say("scontrol", config)
    say("sstat", steps)
    say("sacct", "")
    seen = consumed(job)
    assert seen.joules is None
    assert why in (seen.reason or "")


def look(at_s: float, joules: float) -> Consumed:
    return Consumed(at_s=at_s, joules=joules, step="71.batch", every_s=3.0)


@pytest.mark.covers("E-MON02")
def test_a_load_is_told_what_the_node_used_while_it_ran():
    assert spent(look(10, 1000), look(40, 7000)) == NodeEnergy(value_j=6000, window_s=30, step="71.batch")


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (look(40, 1000), "did not grow"),
        (look(40, 900), "did not grow"),
        (look(20, 2000), "reads the meter every 3 s"),
        (Consumed(at_s=40, reason="gone"), "gone"),
    ],
)
def test_a_meter_that_says_too_little_gives_no_figure(after, why):
    told = spent(look(10, 1000), after)
    assert told.value_j is None
    assert why in (told.reason or "")
