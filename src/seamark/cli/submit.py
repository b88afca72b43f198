"""bench submit: measures a scenario and writes its report, with a progress bar on a terminal."""

import json
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click
import psutil
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from seamark.cli.options import (
    StudyOptions,
    json_option,
    lane_options,
    lane_words,
    measure_anew_option,
    scenario_among,
    strict_option,
)
from seamark.cli.output import LINE_S, print_json, terminal, warn_of_machine
from seamark.cli.report import show_summary
from seamark.config.lanes import lanes_at_once
from seamark.config.yaml_source import shown
from seamark.dispatch.dispatcher import dispatcher_of, is_batch, leaves_this_machine
from seamark.errors import SiteError, UserError
from seamark.model.failure_categories import INTERRUPTED
from seamark.model.plurals import counted
from seamark.model.scenario import NotifyEvent
from seamark.planning.plan_checks import checked_by_plugins
from seamark.planning.plan_text import plan_facts
from seamark.planning.study import Study
from seamark.planning.study_paths import missing_here, require_paths
from seamark.services.runtimes.environments import installing, missing_environments
from seamark.trials.conflicts import conflicts, put_conflicts_aside, require_no_conflicts
from seamark.trials.failure_lines import failure_lines
from seamark.trials.progress import Progress, Seen, progress_of
from seamark.trials.repeated_failures import NOT_TRIED
from seamark.trials.time_left import time_left
from seamark.workflow.inside_snakemake import was_interrupted
from seamark.workflow.lanes import require_lanes
from seamark.workflow.notify import notify
from seamark.workflow.run_end import EndSignals, end_jobs_left, end_run
from seamark.workflow.run_log import broken_jobs
from seamark.workflow.snakemake_cli import another_run, beat, release, rest, start, the_only_run

NEARLY_FULL_BYTES = 1 << 16
LOCKED = "LockException"
"""Text in Snakemake's log when another Snakemake runs in the folder."""
SIGNAL_S = 0.1
"""Longest delay until a signal is handled."""


@click.command("submit", context_settings={"ignore_unknown_options": True})
@scenario_among("snakemake_options")
@json_option
@click.option("-n", "--dry-run", is_flag=True, help="List the jobs without running them.")
@strict_option
@measure_anew_option
@lane_options
@click.argument("snakemake_options", metavar="[SCENARIO] [-- SNAKEMAKE_OPTIONS...]", nargs=-1, type=click.UNPROCESSED)
def command(
    where: StudyOptions,
    as_json: bool,
    dry_run: bool,
    strict: bool,
    measure_anew: bool,
    snakemake_options: tuple[str, ...],
) -> int:
    """Measure the missing trials and write the report. Arguments after `--` go to Snakemake.

    If trials of another server, site, machine or configuration exist, they are listed and nothing is measured: use
    another results folder, or --measure-anew.

    \b
    Examples:
      bench submit -c config/scenarios/quickstart.yaml
      bench submit -c config/scenarios/llm_vllm_baseline.yaml --site meluxina
      bench submit quickstart --gpus 0,1 --per-device 2 --parallel 4
      bench submit -c config/scenarios/quickstart.yaml -- --jobs 4
    """
    if strict and dry_run:
        raise UserError("--strict, --dry-run: a dry run measures nothing that could be judged. Use one of them.")
    study = where.open()
    notes = require_runnable(study)
    if dry_run and measure_anew and (found := conflicts(study)):
        for conflict in found:
            click.echo(f"{conflict.text()} They would be set aside and measured again.")
        return 0
    if dry_run:
        from seamark.workflow.snakemake_cli import command as words

        _print_notes((*_plan_notes(study), *notes))
        return subprocess.run(words(study, extra=("--dry-run", *snakemake_options)), check=False).returncode
    require_what_it_needs(study)
    _print_notes(notes)
    if not measure_anew:
        require_no_conflicts(study)
    with the_next_run(study):
        if measure_anew and (names := put_conflicts_aside(study)):
            click.echo(f"{counted(len(names), 'trial')} measured before: moved into `attempts` of each.", err=True)
        return submit(study, as_json=as_json, strict=strict, extra=snakemake_options)


def require_runnable(study: Study) -> tuple[str, ...]:
    """Raise UserError for a plan that can't be run on its site; return notes on what is missing here."""
    require_paths(study)
    require_lanes(study)
    study.require_nodes()
    study.require_environments()
    study.require_drivers()
    study.require_datasets()
    if why := dispatcher_of(study.site).misfit(study.plan, study.site):
        raise UserError(why)
    return (*map(str, missing_here(study)), *(note for check in checked_by_plugins(study) for note in check.notes))


def require_what_it_needs(study: Study) -> None:
    """Check permissions, images and disk space before anything runs; print notes on what may become short.

    Raises UserError for files of another user, SiteError for missing images or disk space.
    """
    from seamark.housekeeping.storage_estimate import require_room
    from seamark.services.images.prepare import require_images
    from seamark.services.supervisor.node_locks import node_folder
    from seamark.trials.permissions import require_ours

    study.require_variables()
    require_ours(study)
    if not is_batch(study.site):
        node_folder()
    if study.site.in_images or study.site.images.jobs:
        require_images(study)
    _print_notes((*_plan_notes(study), *require_room(study)))


def _plan_notes(study: Study) -> tuple[str, ...]:
    return plan_facts(study.plan, study.services, study.site).notes


def _print_notes(notes: Iterable[str]) -> None:
    for note in notes:
        click.echo(f"Note: {note}", err=True)


@contextmanager
def the_next_run(study: Study) -> Iterator[None]:
    """End what an earlier run left, and hold the lock of the study. Raises UserError while another run has it."""
    with the_only_run(study.root):
        take_over(study)
        yield


def submit(study: Study, *, as_json: bool = False, strict: bool = False, extra: tuple[str, ...] = ()) -> int:
    """Run the missing trials of a study's scenario, as `the_next_run`; print the summary; return the exit code.

    `strict`: the results must pass the gate for exit code 0.
    """
    console = terminal(stderr=as_json)
    before = progress_of(study)
    console.print(_opening(study, before))
    timed = not all(study.services[deployment.service].virtual_clock for deployment in study.plan.served)
    if timed and not as_json and _missing(before) and not leaves_this_machine(study.site):
        warn_of_machine(several_machines=study.site.carrier != "local", results=study.results)
    log = study.results / study.scenario.name / "logs" / f"submit-{time.strftime('%Y%m%dT%H%M%S')}.log"
    code = _run(study, console, log, extra)
    after = progress_of(study)
    _notify(study, "end", after, log)
    gate, unmeasured = None, len(after.states) - after.count("ok") - len(after.failed)
    if strict and code == 0:
        from seamark.analysis.gate import gate_of_summary
        from seamark.analysis.summary import summarise

        gate = gate_of_summary(summarise(study.plan, study.folder(study.scenario.name)), unmeasured)
    if as_json:
        judged = {} if gate is None else {"gate": {"passed": gate.passed, "reasons": gate.reasons}}
        print_json(**after.document(), **judged)
    else:
        show_summary(study, console)
    if gate is not None:
        click.echo(gate.text, err=True)
    if after.failed:
        console.print(f"{len(after.failed)} of {counted(len(after.states), 'trial')} failed:", style="bold red")
        for line in failure_lines(after, study.folder(study.scenario.name), study.root):
            console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
        console.print("To measure them again and keep their records:")
        console.print(_retry_command(study), markup=False, highlight=False, soft_wrap=True)
    if code != 0:
        raise SiteError(*_causes(study, log, after))
    if unmeasured and not extra:
        raise SiteError(_kept(after))
    return 1 if after.failed or (gate is not None and not gate.passed) else 0


def _retry_command(study: Study) -> str:
    """Return the command line that measures a study's failed trials again, as this run does."""
    site = [] if study.site_name == (study.scenario.site or "local") else ["--site", study.site_name]
    lanes = lane_words(json.loads(study.lanes)) if study.lanes else []
    return shlex.join(["bench", "retry", "-c", str(study.scenario_path), *site, *lanes])


def take_over(study: Study) -> None:
    """End what an earlier run left, so that nothing measures beside the next. UserError while one is active."""
    release(study.root)
    dispatcher = dispatcher_of(study.site)
    for job in end_jobs_left(study):
        what = f"{dispatcher.title} job {job.id} of an earlier run was cancelled"
        click.echo(f"{what}; its finished trials are kept.", err=True)
    dispatcher.forget_losses(study.root)
    for note in _failed_environments(study):
        note.unlink(missing_ok=True)
    if was_interrupted(study.root):
        for record in study.results.glob(".environments/*.json"):
            record.unlink(missing_ok=True)


def _run(study: Study, console: Console, log: Path, extra: tuple[str, ...]) -> int:
    """Run Snakemake to its end; return its exit code.

    Raises KeyboardInterrupt after a signal, when its jobs and servers have ended or those left are printed. A signal
    that finds the run complete changes nothing.
    """
    with EndSignals() as signals:
        process = start(study, log, extra=extra)
        try:
            _follow(study, console, process, signals, log)
            if signals.count and process.poll() != 0:
                runs = [psutil.Process(process.pid)] if process.returncode is None else []
                left = end_run(study, runs, lambda: signals.count)
                process.wait()
                with suppress(OSError):  # the terminal may be gone
                    click.echo("\n".join(left), err=True, nl=bool(left))
                raise KeyboardInterrupt
        finally:
            rest(study.root)
    return process.returncode


def _follow(
    study: Study, console: Console, process: "subprocess.Popen[bytes]", signals: EndSignals, log: Path
) -> None:
    """Show progress until the run ends or a signal arrives; notify of the first trial that fails in it."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[now]}"),
    )
    look_s = 0.5 if console.is_terminal else LINE_S
    said: dict[str, str] = {}

    def say(what: str, text: str | None) -> None:
        """Print a line where there is no bar, once for each text."""
        if text and not console.is_terminal and said.get(what) != text:
            said[what] = text
            console.print(text, markup=False, soft_wrap=True)

    with Bar(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        seen: Seen = {}
        before = progress_of(study, seen)
        done, tenths, left = before.done, before.done * 10 // len(study.plan.trials), ""
        failed, notified = {state.trial for state in before.failed}, False
        environments, began_s, shown = missing_environments(study), time.time(), 0.0
        task = bar.add_task("trials", total=len(study.plan.trials), now="starting")
        while process.poll() is None and not signals.count:
            beat(study.root, process.pid)
            now = progress_of(study, seen)
            if not notified and any(state.trial not in failed for state in now.failed):
                notified = True
                _notify(study, "failure", now, log)
            if now.done > done and (done == before.done or now.done * 10 // len(now.states) > tenths):
                tenths, known = now.done * 10 // len(now.states), time_left(study, now)
                left = "" if known is None else f"; {known.text(hours=False)}"
                say("done", f"{now.done} of {counted(len(now.states), 'trial')} done{left}")
            done = max(done, now.done)
            shown = max(shown, now.done + now.part)  # a trial that ends may be in no file for a moment
            beside = installing(study, environments) if environments else None
            if beside is None and done == len(now.states):
                beside = _drawn(study, began_s)
            say("waiting", now.waiting)
            probes = (state for state in now.states if state.state == "running" and state.detail)
            say("probe", next((f"{state.trial}: {state.detail}" for state in probes), None))
            say("beside", beside)
            bar.update(task, completed=shown, now=(beside or _now(now, len(study.plan.trials))) + left)
            _wait(process, look_s, signals)


def _drawn(study: Study, since_unix_s: float) -> str | None:
    """Return how many parts of the report are drawn, from the log of its job; None before it has begun."""
    log = study.folder(study.scenario.name).root / "logs" / "report.log"
    with suppress(OSError):
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
        if log.stat().st_mtime >= since_unix_s:
            return next((f"report: {line}" for line in reversed(lines) if line.endswith(" parts")), None)
    return None


def _wait(process: "subprocess.Popen[bytes]", seconds: float, signals: EndSignals) -> None:
    """Wait some seconds, or until the process ends or a signal arrives."""
    limit_s = time.monotonic() + seconds
    while not signals.count and (left_s := limit_s - time.monotonic()) > 0:
        with suppress(subprocess.TimeoutExpired):
            process.wait(min(left_s, SIGNAL_S))
            return


def _notify(study: Study, event: NotifyEvent, now: Progress, log: Path) -> None:
    if why := notify(study.scenario.notify, event, now, log):
        click.echo(why, err=True)


def _now(now: Progress, planned: int) -> str:
    running = next((state for state in now.states if state.state == "running"), None)
    if running is not None:
        return f"{running.trial}: {running.detail}" if running.detail else running.trial
    if now.waiting:
        return now.waiting
    return "metrics and report" if now.done == planned else "preparing"


def _missing(before: Progress) -> int:
    """Return the number of trials that a run measures."""
    return before.count("planned", "running") + sum(
        state.category in (NOT_TRIED, INTERRUPTED) for state in before.failed
    )


def _opening(study: Study, before: Progress) -> str:
    missing = _missing(before)
    name, total = study.scenario.name, len(before.states)
    if missing == 0:
        there = "the one trial is" if total == 1 else f"all {counted(total, 'trial')} are"
        return f"{name}: {there} there; only derived files are updated."
    deployments = counted(len(study.plan.deployments), "deployment")
    lanes = f", up to {lanes_at_once(study.site)} at a time" if study.site.parallel > 1 else ""
    return f"{name}: {missing} of {counted(total, 'trial')} to measure on {study.site_name}, {deployments}{lanes}."


def _failed_environments(study: Study) -> list[Path]:
    """Return the notes on environments that could not be built."""
    return sorted(study.results.glob(".environments/*.failed"))


def _kept(after: Progress) -> str:
    return f"{after.count('ok')} of {counted(len(after.states), 'trial')} are measured. Submit again for the rest."


def _causes(study: Study, log: Path, after: Progress) -> list[str]:
    """Return why a run ended early: losses of the batch system, jobs that broke off, else the end of Snakemake's
    log."""
    if shutil.disk_usage(log.parent).free < NEARLY_FULL_BYTES:
        full = "no space left on this file system. Free some space, then submit again; nothing is lost."
        return [f"{log.parent}: {full}"]
    kept = _kept(after)
    deployments = [deployment.id for deployment in study.plan.deployments]
    causes = [note.read_text(encoding="utf-8", errors="replace") for note in _failed_environments(study)]
    if causes := [*causes, *dispatcher_of(study.site).losses(study.root, deployments)]:
        return [*causes, f"The run ended early; its log is {log}. {kept}"]
    text = log.read_text(encoding="utf-8", errors="replace")
    if LOCKED in text:
        raise UserError(another_run(study.root, "a Snakemake that bench did not start"))
    if broken := broken_jobs(text, study.root):
        return [*broken, f"The other jobs went on; the run's log is {shown(log)}. {kept}"]
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    tail = "\n".join(lines[-25:])
    return [f"The run ended early. The end of {log}:\n{tail}\n{kept}"]
