"""A lane: claims one unit after another from the list of its run, and runs each on a device until none is left.

Lanes of a run are jobs of Snakemake side by side. A unit is a deployment with its pending trials. Snakemake removes
the outputs of a job before it runs, so records of measured trials are kept here too, for `load` and `teardown` to
publish.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from seamark.dispatch.claim_list import CLAIMS, ClaimList
from seamark.dispatch.order import Order, Unit, order_of
from seamark.errors import UserError
from seamark.planning.plan_order import units_of
from seamark.planning.plan_time import time_of
from seamark.planning.study import Study
from seamark.platform.fork_server.client import LEADER
from seamark.platform.process_tree import exit_on_signals
from seamark.services.supervisor import deployment as servers
from seamark.services.supervisor.device_locks import DevicePool, DeviceSlot, SlotHolder
from seamark.storage.documents import write_text
from seamark.storage.paths import LaneFolder, ScenarioFolder
from seamark.trials.conflicts import CommitMarks, pending_trials_of
from seamark.trials.lane_device import kept_to, memory_released, pool_here, require_gpus
from seamark.trials.load_lock import write_waiting
from seamark.trials.measure import LoadFailure
from seamark.trials.permissions import user_named
from seamark.trials.run_deployment import run_deployment
from seamark.trials.trial_files import finite_lengths_s

POLL_S = 0.02
"""Interval of looks at the list while no unit may begin."""
MOST_KILLED = 2
"""Limit of lanes that are killed while they hold a unit; begun again, it could end all lanes of the run in turn."""
LANE_DIED = LoadFailure(
    category="lane_died",
    reason="two lanes were killed while they held this deployment, so it was not begun a third time",
)


def pending_units(study: Study, scenario: str) -> tuple[Unit, ...]:
    """Return a unit for each deployment with pending trials, in the order of the plan."""
    plan, pending = study.plan_of(scenario), pending_trials_of(study, scenario, CommitMarks(study, scenario))
    deployments = tuple(deployment for deployment in plan.deployments if deployment.id in pending)
    trials = tuple(trial for deployment in deployments for trial in pending[deployment.id])
    measured_s = finite_lengths_s(plan, study.folder(scenario))
    left = replace(plan, deployments=deployments, trials=trials)
    return units_of(plan, study.services, time_of(left, study.services, measured_s=measured_s).deployments)


def require_plan_fits_lanes(study: Study) -> None:
    """Raise UserError where lanes of the site cannot run the plan: a device is missing, a deployment needs more than
    one, or lanes have GPUs that no deployment asks for."""
    site, plan, mistakes = study.site, study.plan, []
    most = 1 if site.devices is not None and site.devices.gpu is not None else 0
    for key, wanted, limit in (
        ("nodes", max(deployment.nodes for deployment in plan.deployments), 1),
        ("gpus", max(deployment.gpus for deployment in plan.deployments), most),
    ):
        if wanted > limit:
            at = study.scenario.lines.get(f"resources.{key}", str(study.scenario_path))
            has = "one GPU" if most else "one CPU and no GPU"
            what = "one node" if key == "nodes" else has
            mistakes.append(f"{at}: {wanted} {key} for a deployment, but a lane has {what}. Use --parallel 1.")
    # a program and a load without a server see the device of their lane though none was asked for
    serving = [
        deployment
        for deployment in plan.deployments
        if deployment.members or study.services[deployment.service].server is not None
    ]
    if most and len(serving) == len(plan.deployments) and not any(deployment.gpus for deployment in serving):
        mistakes.append(
            f"{study.scenario_path}: lanes on GPUs, but no deployment asks for one, so that all servers would compute"
            " on the CPU. Set 'resources: {gpus: 1}', or use --cpus."
        )
    if mistakes:
        raise UserError(*mistakes)
    require_gpus(pool_here(site), site.name)


def run_lane(study: Study, scenario: str, run: str, number: str, arguments: Sequence[str]) -> None:
    """Run units of a scenario until all are done. `arguments` come before each phase script's own."""
    results, parent_pid = study.folder(scenario), os.getppid()
    folder = results.lane(run)
    _remove_others(folder.root)
    claims = ClaimList.make(folder.claims, lambda: pending_units(study, scenario))
    pool = pool_here(study.site)
    os.environ[LEADER] = str(os.getpid())  # the phases of a unit belong to this lane
    os.environ[CLAIMS] = str(folder.claims)
    holder = SlotHolder(pid=os.getpid(), user=user_named(os.getuid()), study=str(study.root), run=run)

    def on_wait() -> None:
        if os.getppid() != parent_pid:
            raise SystemExit("The run of this lane has ended.")

    def run_unit(unit: Unit, slot: DeviceSlot) -> None:
        with kept_to(slot, pool), memory_released(slot, partial(print, file=sys.stderr, flush=True)):
            servers.stop(results.deployment(unit.id), "evicted")  # of a lane that was killed
            given_up = LANE_DIED if unit.killed_lanes >= MOST_KILLED else None
            try:
                run_deployment(study, scenario, unit.id, arguments, failed=False, anew=False, given_up=given_up)
            except UserError as mistake:
                print(mistake, file=sys.stderr, flush=True)
        _keep_records(study, scenario, unit.id, folder)

    with exit_on_signals(signal.SIGTERM):
        work_off(claims, order_of(study.site.order), pool, holder, results, run_unit, on_wait)
    write_text(folder.outcome(number), "{}\n")


def work_off(
    claims: ClaimList,
    order: Order,
    pool: DevicePool,
    holder: SlotHolder,
    results: ScenarioFolder,
    run_unit: Callable[[Unit, DeviceSlot], None],
    on_wait: Callable[[], object] = lambda: None,
) -> None:
    """Claim units and run each on a device until all units of the list are done, those of other lanes too: a lane may
    be killed, and its unit returns."""
    while not claims.ended():
        claim = claims.claim(order)
        if claim is None:
            on_wait()
            time.sleep(POLL_S)
            continue
        deployment = results.deployment(claim.unit.id)
        own = replace(holder, folder=str(deployment.root.resolve()))
        with pool.taken(own, on_wait, partial(write_waiting, deployment.waiting)) as slot:
            deployment.waiting.unlink(missing_ok=True)
            print(f"{claim.unit.id}: on {slot.device}, slot {slot.number}", flush=True)
            claims.begin(claim)
            began_s = time.time()
            run_unit(claim.unit, slot)
            took_s = time.time() - began_s
        claims.finish(claim)
        print(f"{claim.unit.id}: ended after {took_s:.1f} s", flush=True)


def publish(kept: Path, target: Path) -> bool:
    """Write a record that a lane of this run kept; return whether there is one."""
    try:
        write_text(target, kept.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    return True


def _keep_records(study: Study, scenario: str, deployment: str, folder: LaneFolder) -> None:
    results = study.folder(scenario)
    for trial in study.trials_of(scenario, deployment):
        publish(results.trial(trial.id).load, folder.load(trial.id))
    publish(results.deployment(deployment).record, folder.record(deployment))


def _remove_others(own: Path) -> None:
    """Remove the folders of earlier runs; only one run of a study is active at a time."""
    for other in own.parent.glob("*"):
        if other != own:
            shutil.rmtree(other, ignore_errors=True)
