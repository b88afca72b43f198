"""Jobs that broke off, by Snakemake's own words."""

from pathlib import Path

import pytest

from seamark.workflow.run_log import broken_jobs

WORDS = (
    "set -euo pipefail;  exec /x/python /x/scripts/{rule}.py config/scenarios/try.yaml local try s-1--w-2--r1 4b8f"
)
JOB = """\
RuleException:
CalledProcessError in file "/x/workflow/rules/measure.smk", line 31:
Command '{words} > {log} 2>&1' {end}.
[Sat Nov 28 04:26:41 2026]
Error in rule {rule}:
    log: {log} (check log file(s) for error details)
"""


def said(end: str, rule: str = "load", log: str = "results/try/logs/load/s-1--w-2--r1.log") -> str:
    return JOB.format(words=WORDS.format(rule=rule), rule=rule, log=log, end=end)


@pytest.mark.parametrize("end", ["died with <Signals.SIGKILL: 9>", "returned non-zero exit status 137"])
def test_a_killed_job_is_one_line_with_its_trial_and_signal(tmp_path: Path, end: str) -> None:
    [line] = broken_jobs("Select jobs to execute...\n" + said(end) * 2, tmp_path)
    assert line.startswith("s-1--w-2--r1: load ")
    assert "SIGKILL" in line


def test_a_job_that_ends_badly_is_one_line_with_the_last_line_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "results" / "a b" / "logs" / "summary.log"
    log.parent.mkdir(parents=True)
    log.write_text("Traceback\nOSError: no such place\n\n")
    end = "returned non-zero exit status 3"
    text = said(end, "summary", "'results/a b/logs/summary.log'") + said(end, "metrics", "results/none/metrics/t.log")
    first, second = broken_jobs(text, tmp_path)
    assert [word in first for word in ("summary ", " 3", "OSError: no such place")] == [True] * 3
    assert second.startswith("t: metrics ")


def test_a_log_without_a_broken_job_gives_no_line(tmp_path: Path) -> None:
    assert broken_jobs("10 of 19 steps (53%) done\nWorkflowError: something else\n", tmp_path) == []
