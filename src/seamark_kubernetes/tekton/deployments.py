"""Deployments of a plan as combinations of parameters, which name them in manifests and find them again in a pod."""

import re
from collections import Counter
from collections.abc import Mapping

from seamark.config.levels import show
from seamark.model.service import Service
from seamark.model.trial import Plan
from seamark.planning.plan_order import units_of, unrollable
from seamark_kubernetes.tekton.matrix import Combination

DEPLOYMENT = "deployment"
"""Parameter that names a deployment by its id, where its levels cannot."""
PASSED: Mapping[str, str] = {
    "namespace": "$(context.pipelineRun.namespace)",
    "hf-secret": "hf-secret",
    "s3-keys": "s3-keys",
    "s3-bucket": "",
    "s3-endpoint": "",
    "modelWaitTimeout": "900",
    "behaviorOnValidationFailure": "terminate",
    "skip": "",
    "dryRun": "false",
    "debug": "false",
}
"""Parameters of a PipelineRun, which its tasks get as they are."""
OWN = (*PASSED, DEPLOYMENT, "image", "study", "workspace-pvc-name", "model-pvc-name")
"""Parameters of a task that are no levels."""
_NAME = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)


def combinations(plan: Plan, services: Mapping[str, Service]) -> dict[str, Combination]:
    """Return for each deployment with a server, by its id and in the order of the plan, the levels that tell it from
    the others: of the scenario's factors, of services and of resources. None for a single one.

    Where levels are equal as texts, or can be no parameter of Tekton, it is the id under DEPLOYMENT.
    """
    units = units_of(plan, services)
    names = unrollable(units)
    rows = {unit.id: {name: show(unit.levels[name]) for name in names} for unit in units}
    distinct = max(Counter(map(str, rows.values())).values(), default=1) == 1
    written = all(_NAME.fullmatch(name) and name not in OWN for name in names)
    if distinct and written and not any("$(" in level for row in rows.values() for level in row.values()):
        return rows
    return {name: {DEPLOYMENT: name} for name in rows}
