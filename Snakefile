"""From a scenario to its report: plan, rules and targets. profiles/ decides where jobs run, config/ what they measure."""

import sys
from pathlib import Path

from snakemake import __version__ as version
from snakemake.dag import DAG
from snakemake.exceptions import WorkflowError

from seamark.workflow.dag import Dag
from seamark.errors import UserError
from seamark.model.dotted import search_in
from seamark.planning.study import Study
from seamark.workflow.inside_snakemake import adapt, lift_default_rate_limit

search_in(Path.cwd())
try:
    dag = Dag(
        study=Study.at(
            Path.cwd(),
            scenario=config.get("scenario"),
            site=config.get("site"),
            lanes=config.get("lanes", ""),
        ),
        contained="apptainer"
        in map(str, workflow.deployment_settings.deployment_method),
    )
    if workflow.is_main_process:
        print(dag.title, file=sys.stderr)
        dag.sweep()
except UserError as mistake:
    raise WorkflowError(str(mistake))

dag.lead()
note = adapt(version, DAG, dag, WorkflowError)
if note and workflow.is_main_process:
    print(note, file=sys.stderr)
SCENARIO, DEPLOYMENT, TRIAL = dag.patterns
TRIAL_ID = "{wildcards.deployment:q}--{wildcards.workload:q}--r{wildcards.repetition:q}"


wildcard_constraints:
    scenario=r"[^/.][^/]*",
    deployment=r"(?:(?!--)[^/])+",
    workload=r"(?:(?!--)[^/])+",
    repetition=r"\d+",
    run=r"[0-9a-f]+",
    lane=r"\d+",


container: dag.outside


resource_scopes:
    slot="local",


# One load at a time. Repeated here, because a batch job does not receive the resources of the profile.
workflow.register_resource("slot", dag.slots)


rule all:
    input:
        dag.targets(),
    localrule: True


include: dag.file("workflow/rules/prepare.smk")
include: dag.file("workflow/rules/serve.smk")
include: dag.file("workflow/rules/lane.smk")
include: dag.file("workflow/rules/measure.smk")
include: dag.file("workflow/rules/simulate.smk")
include: dag.file("workflow/rules/report.smk")


onstart:
    lift_default_rate_limit(version, workflow.scheduler)


onsuccess:
    dag.stop_leftovers()


onerror:
    dag.stop_leftovers()
