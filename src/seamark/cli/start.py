"""bench start: `bench submit` in the background."""

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click
import psutil

from seamark.cli.options import (
    StudyOptions,
    json_option,
    lane_options,
    lane_words,
    measure_anew_option,
    scenario_option,
)
from seamark.cli.output import print_json
from seamark.cli.submit import require_runnable, require_what_it_needs
from seamark.errors import SiteError, UserError
from seamark.planning.study import Study
from seamark.trials.conflicts import require_no_conflicts
from seamark.workflow.snakemake_cli import release, runs_in

SOON_S = 30.0
TAIL_LINES = 20


@click.command("start")
@scenario_option
@json_option
@measure_anew_option
@lane_options
def command(where: StudyOptions, as_json: bool, measure_anew: bool) -> int:
    """Submit a scenario in the background.

    It continues after you log out. `bench status` shows its progress, `bench stop` ends it. `bench servers start`
    starts only a server.

    \b
    Examples:
      bench start quickstart
    """
    study = where.open()
    require_runnable(study)
    require_what_it_needs(study)
    if not measure_anew:
        require_no_conflicts(study)
    release(study.root)
    log = study.results / study.scenario.name / "logs" / f"start-{time.strftime('%Y%m%dT%H%M%S')}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    run = _detached(study, log, [*(["--measure-anew"] if measure_anew else []), *lane_words(where.lanes)])
    code = _begun(run, study.root)
    if code not in (None, 0):
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-TAIL_LINES:])
        raise (UserError if code == 2 else SiteError)(tail or f"The run ended at once; its output is {log}.")
    facts = {"scenario": study.scenario.name, "pid": run.pid, "log": str(log), "running": code is None}
    if as_json:
        print_json(**facts)
    elif code is None:
        click.echo(f"{study.scenario.name}: runs in the background (process {run.pid}); its output: {log}")
        click.echo(f"`bench status {study.scenario_path} --watch` shows its progress, `bench stop` ends it.")
    else:
        click.echo(log.read_text(errors="replace").rstrip())
    return 0


def _detached(study: Study, log: Path, options: Sequence[str]) -> "subprocess.Popen[bytes]":
    words = [sys.executable, "-m", "seamark.cli.main", "submit", "-c", str(study.scenario_path), *options]
    with log.open("ab") as output:
        return subprocess.Popen(
            [*words, "--site", study.site_name],
            cwd=study.root,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _begun(run: "subprocess.Popen[bytes]", root: Path) -> int | None:
    """Wait until Snakemake runs as a child of this run, and not of a concurrent one, or the run has ended; return the
    exit code, None while it continues."""
    limit_s = time.monotonic() + SOON_S
    while time.monotonic() < limit_s and run.poll() is None:
        with suppress(psutil.Error):
            if any(process.ppid() == run.pid for process in runs_in(root)):
                break
        time.sleep(0.1)
    return run.poll()
