"""bench prepare: prepares the images and environments of a scenario, here or in a batch job."""

import sys
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from seamark.cli.options import StudyOptions, json_option, scenario_option
from seamark.cli.output import print_json, terminal

if TYPE_CHECKING:
    from seamark.planning.study import Study
    from seamark.services.images.prepare import PreparationStep

STYLE = {"there": "green", "made": "bold green", "missing": "yellow", "failed": "bold red"}
DIGEST_LETTERS = 12
JOB = "seamark-prepare"


@click.command("prepare")
@scenario_option
@json_option
@click.option("-n", "--dry-run", is_flag=True, help="Only list what is missing.")
@click.option("--verify", is_flag=True, help="Check existing images against their digests.")
@click.option("--here", is_flag=True, help="Prepare here, not in a batch job of the site.")
def command(where: StudyOptions, as_json: bool, dry_run: bool, verify: bool, here: bool) -> int:
    """Pull or build the images of a scenario, and build the environments of its clients.

    What exists is kept. Digests are recorded in containers/images.lock.yaml. The flags of each engine are checked in
    its image.

    \b
    Examples:
      bench prepare -c config/scenarios/llm_vllm_baseline.yaml --site meluxina -n
      bench prepare -c config/scenarios/llm_vllm_baseline.yaml --site meluxina
    """
    from seamark.planning.study_paths import require_paths
    from seamark.services.images.prepare import missing, prepare
    from seamark.storage.codec import encode

    study = where.open()
    require_paths(study)
    study.require_variables()
    console = terminal(stderr=as_json)
    if dry_run:
        steps = missing(study)
    elif study.site.images.where == "job" and not here:
        return _in_a_job(study, console, as_json, verify)
    else:
        steps = prepare(study, verify=verify, say=lambda what: console.print(f"{what} ...", markup=False))
    if as_json:
        print_json(steps=encode(steps))
    else:
        _show(steps, console)
    return 3 if any(step.state == "failed" for step in steps) else 0


def _show(steps: "list[PreparationStep]", console: Console) -> None:
    if not steps:
        console.print("Nothing is needed: every service of this scenario runs in the base environment.")
        return
    table = Table(box=None, pad_edge=False)
    for column in ("state", "what", "from", "digest", "size", "licence", "flags"):
        table.add_column(column)
    for step in steps:
        digest = (step.digest or "").removeprefix("sha256:")[:DIGEST_LETTERS]
        size = "" if step.size_bytes is None else f"{step.size_bytes / 1e6:,.0f} MB"
        state = f"[{STYLE[step.state]}]{step.state}[/]"
        flags = (step.flags or "").partition(":")[0]
        facts = (f"{step.kind} {step.name}", step.source, digest, size, step.licence, flags)
        table.add_row(state, *map(Text, facts))
    console.print(table)
    for step in steps:
        if step.why:
            console.print(step.why, style="red", markup=False, soft_wrap=True)
        if step.flags and ":" in step.flags:
            console.print(f"{step.name}: flags {step.flags}", style="yellow", markup=False, soft_wrap=True)


def _in_a_job(study: "Study", console: Console, as_json: bool, verify: bool) -> int:
    """Run the same command in a batch job and wait for it; its output goes to the scenario's logs."""
    from seamark.dispatch.dispatcher import batch_dispatcher
    from seamark.dispatch.job import JobResources, JobSpec

    plan, logs = study.plan, study.results / study.scenario.name / "logs"
    resources = JobResources(account=plan.account, partition=plan.partition, qos=plan.qos)
    words = [sys.executable, "-m", "seamark.cli.main", "prepare", "--here", "-c", str(study.scenario_path)]
    words += ["--site", study.site_name, *(["--json"] if as_json else []), *(["--verify"] if verify else [])]
    console.print("A batch job prepares this; waiting for it. With --here it is done where you are.")
    options = study.site.images.job
    job = JobSpec(command=words, name=JOB, logs=logs, folder=study.root, resources=resources, options=options)
    number, code = batch_dispatcher(study.site).run(job, study.site)
    for stream, ending in ((sys.stdout, "out"), (sys.stderr, "err")):
        written = logs / f"{JOB}_{number}.{ending}"
        if written.is_file():
            print(written.read_text(errors="replace"), end="", file=stream)
    return code
