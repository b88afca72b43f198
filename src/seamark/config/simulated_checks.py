"""Checks of simulated workloads, by the driver of their recipe: others have the checks of any workload alone."""

from collections.abc import Callable, Mapping

from seamark.config.fitted_settings import check_fitted
from seamark.config.workflow_settings import check_workflows
from seamark.config.yaml_source import Item, Mistakes
from seamark.model.scenario import Workload
from seamark.model.service import Service

Check = Callable[[Item, Workload, Service, int, Mistakes], None]
CHECKS: Mapping[str, Check] = {
    "seamark.trials.simulation.workflow_cluster:WorkflowCluster": check_workflows,
    "seamark.trials.simulation.fitted_service:SimulatedService": check_fitted,
}


def check_simulated(item: Item, workload: Workload, service: Service, repetitions: int, mistakes: Mistakes) -> None:
    """Note what is wrong with the files and settings of a workload, which has this many repetitions."""
    if (check := CHECKS.get(service.driver)) is not None:
        check(item, workload, service, repetitions, mistakes)
