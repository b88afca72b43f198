"""What simulation adds to `bench`."""

from seamark.model.plugin import Plugin, Verb

PLUGIN = Plugin(
    name="simulate",
    verbs={
        "fit": Verb(
            summary="Fit a queueing model to measured trials, and score it.",
            command="seamark_simulate.cli.fit:command",
            derives_figures=True,
        ),
        "baseline": Verb(
            summary="Run workflows on simulated GPUs under the baseline policy.",
            command="seamark_simulate.cli.baseline:command",
        ),
        "simulate": Verb(
            summary="Run workflows on simulated GPUs under one or several policies.",
            command="seamark_simulate.cli.simulate:command",
        ),
        "memory": Verb(
            summary="Show what a language model needs of each GPU.", command="seamark_simulate.cli.memory:command"
        ),
        "capacity": Verb(
            summary="Plan how many servers a load needs, by fitted models.",
            command="seamark_simulate.cli.capacity:command",
        ),
        "check": Verb(
            summary="Check an execution log of simulated GPUs.", command="seamark_simulate.cli.check:command"
        ),
    },
    kinds={"simulated": "seamark_simulate.trials.virtual_clock"},
    check_plan="seamark_simulate.planning.gpu_memory_check:check_plan",
    schedule="seamark_simulate.trials.execution_file:schedule_of_trial",
    page="seamark_simulate.report.page.page_part:PAGE",
    headline="seamark_simulate.report.policies:headline_of_policies",
    moved={
        f"seamark_simulate.trials.{name}": f"seamark.trials.simulation.{name}"
        for name in ("workflow_cluster:WorkflowCluster", "fitted_service:SimulatedService")
    },
)
