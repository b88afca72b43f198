"""Operations on a deployment: serve, renew its lease, stop, tear down, and sweep what earlier runs left.

Nothing here raises for a service's failure: a server that does not come up is a result like any other. The work is
done by the supervisor (supervisor.py), a process of its own.
"""

import csv
import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path

from seamark.config.secrets import secrets_of
from seamark.dispatch.identity import allocation, node
from seamark.dispatch.placement import Place
from seamark.errors import UserError
from seamark.model.results.deployment_record import DeploymentRecord, Endpoint, ServerEnd, ServerRun, TrialCounts
from seamark.model.results.gateway_ceiling import GatewayCeiling
from seamark.model.results.load_record import LoadRecord
from seamark.model.server_identity import ServerRecord
from seamark.model.service import GpuMemory, Service
from seamark.model.site import Site
from seamark.model.trial import SCHEMA_VERSION, Deployment
from seamark.planning.study import Study
from seamark.platform.pinning import gpu_variables
from seamark.services.images.images import client_lock
from seamark.services.images.study_images import StudyImages
from seamark.services.runtimes.containers import client_environment
from seamark.services.runtimes.environments import prepare_environment
from seamark.services.supervisor.control_files import (
    MARK,
    ControlFiles,
    StopRequest,
    acquire_lock,
    control_files_of,
    is_alive,
    kill_strays,
    read_heartbeat,
    request_stop,
    supervisors_below,
    touch,
    wait_until_gone,
    write_control_file,
)
from seamark.services.supervisor.events import log_tail, timestamp
from seamark.services.supervisor.launch_spec import LaunchSpec, printed
from seamark.storage.documents import read_or_none, write
from seamark.storage.paths import DEPLOYMENTS, MEMBERS, DeploymentFolder, expanded
from seamark.storage.redaction import hidden, hide_in_log

STOP_WAIT_S = 30.0
"""How long `stop` waits for the supervisor and its server to end."""


PACKAGE_ROOT = Path(__file__).resolve().parents[3]


def serve(
    spec: LaunchSpec,
    locks: Path,
    *,
    identity: ServerRecord | None = None,
    gateway: GatewayCeiling | None = None,
    evict: bool = True,
) -> Endpoint:
    """Start the server of a launch spec under a supervisor, wait until it answers or fails, and write endpoint.json.

    First ends this user's other deployments of the same results on this node (in this batch job), unless `evict` is
    false: two servers side by side would disturb each other's measurement. The environment of the spec is made by the
    lock files in the folder `locks`; `identity` and `gateway` are facts for endpoint.json. When the calling process
    ends before the server answers, the server is ended, with category `interrupted`.
    """
    parent_pid = os.getppid()
    folder, control = spec.folder, control_files_of(spec.folder)
    control.root.mkdir(parents=True, exist_ok=True)
    touch(control.lease)
    try:
        spec = replace(spec, environment=_environment(spec, locks))
    except UserError as cause:
        answer = replace(_no_answer(spec.deployment, spec.service, spec.site, str(cause)), server_identity=identity)
        answer = hidden(answer, secrets_of(spec.deployment.settings))
        write(folder.endpoint, answer)
        return answer
    spec = replace(
        spec,
        service=_with_probe(spec.service, spec.deployment),
        folder=DeploymentFolder(root=folder.root.resolve()),
        study=spec.study.resolve(),
    )
    with acquire_lock(control.serve_lock, wait_s=600.0) or open(os.devnull):
        _make_room(folder, evict)
        folder.endpoint.unlink(missing_ok=True)
        _forget_earlier(control)
        answer = replace(_start_and_wait(spec, control, parent_pid), server_identity=identity, gateway=gateway)
        answer = hidden(answer, secrets_of(spec.deployment.settings))
        write(folder.endpoint, answer)
        touch(control.published)
    return answer


def serve_planned(
    study: Study,
    scenario: str,
    deployment: Deployment,
    site: Site,
    folder: DeploymentFolder,
    *,
    shards: int = 1,
    place: Place | None = None,
    identity: ServerRecord | None = None,
    gateway: GatewayCeiling | None = None,
    service: Service | None = None,
    evict: bool = True,
) -> Endpoint:
    """Serve a deployment with the study's recipe, seed, images, binds and locks; see `serve`.

    Servers of trials and persistent servers start here. `site` may have another address than the study's own.
    `service` is a recipe in place of the study's.
    """
    plan, images = study.plan_of(scenario), StudyImages(study=study)
    service = service or study.services[deployment.service]
    spec = LaunchSpec(
        deployment=deployment,
        service=service,
        site=site,
        folder=folder,
        scenario=scenario,
        seed=plan.seed,
        image=images.of_server(deployment),
        part_images=images.of_parts(deployment),
        client=images.of_client(deployment),
        binds=plan.binds,
        shards=shards,
        place=place,
        study=study.root,
    )
    return serve(spec, study.locks, identity=identity, gateway=gateway, evict=evict)


def _with_probe(service: Service, deployment: Deployment) -> Service:
    """Return a recipe with the path of its health probe filled in; without one a TCP connection has to do."""
    if service.server is None or "{" not in service.server.health.path:
        return service
    path = service.server.health.path.format(settings=printed(deployment.settings))
    health = replace(service.server.health, path=path, probe=service.server.health.probe if path else "tcp")
    return replace(service, server=replace(service.server, health=health))


def _environment(spec: LaunchSpec, locks: Path) -> Path | None:
    if spec.client is not None:
        folder = control_files_of(spec.folder).root.resolve() / "client"
        return client_environment(spec.client, spec.site, spec.binds, spec.folder.results, folder)
    lock = client_lock(spec.service, spec.image, spec.deployment.external)
    return None if lock is None else prepare_environment(lock, locks, expanded(spec.site.paths.environments))


def _forget_earlier(control: ControlFiles) -> None:
    """Remove what an earlier server of the deployment has left of its start and end."""
    for old in (control.exit_record, control.answer, control.stop_request, control.published, control.ports):
        old.unlink(missing_ok=True)


def leave_out(
    deployment: Deployment, service: Service, site: Site, folder: DeploymentFolder, *, category: str, reason: str
) -> None:
    """Write an endpoint.json with the reason why no server is started; the end of an earlier one is no reason."""
    _forget_earlier(control_files_of(folder))
    write(folder.endpoint, replace(_no_answer(deployment, service, site, reason), category=category))


def renew(folder: DeploymentFolder) -> None:
    """Renew the lease: the server is needed for another `lease_s` of the site."""
    touch(control_files_of(folder).lease)


def alive(folder: DeploymentFolder) -> bool:
    """Return whether the deployment's server runs, or one of its members', on this node or another."""
    control = control_files_of(folder)
    if not control.exit_record.exists() and is_alive(control):
        return True
    return any(alive(DeploymentFolder(root=member)) for member in folder.members.glob("*/"))


def why_ended(folder: DeploymentFolder) -> ServerEnd | None:
    """Return how the server ended, None while it runs or when it never ran."""
    control = control_files_of(folder)
    if control.exit_record.exists():
        unwritten = ServerEnd(why="crash", reason="Its exit record could not be written: is the disk full?")
        return read_or_none(control.exit_record, ServerEnd) or unwritten
    if not control.heartbeat.exists() or is_alive(control):
        return None
    lost = "The supervisor left no exit record: it was killed, or its node went down."
    return ServerEnd(why="crash", reason=lost)


def stop(folder: DeploymentFolder, why: str = "stop") -> bool:
    """End the server and wait until all its processes are gone. Returns False if one remains after STOP_WAIT_S."""
    control = control_files_of(folder)
    if not control.root.exists():
        return True
    request_stop(control, why)
    return wait_until_gone(control, STOP_WAIT_S)


def teardown(
    folder: DeploymentFolder,
    loads: Sequence[Path],
    counted_by: GpuMemory | None = None,
    secrets: Sequence[str] = (),
) -> DeploymentRecord:
    """End the server and write deployment.json: its endpoint, the time of each phase, how it ended.

    `counted_by` says where the server counts the tokens that fit into its memory. The `secrets` that it was sent are
    taken out of its last words, and at last out of its logs.
    """
    stop(folder, "teardown")
    control = control_files_of(folder)
    endpoint = (
        read_or_none(folder.endpoint, Endpoint)
        or read_or_none(control.answer, Endpoint)
        or Endpoint(schema_version=SCHEMA_VERSION)
    )
    ended = why_ended(folder) or ServerEnd(why="teardown")
    if (end := hidden(ended, secrets)) != ended:
        write_control_file(control.exit_record, end)
    records = [read_or_none(load, LoadRecord) for load in loads]
    record = DeploymentRecord(
        **{field.name: getattr(endpoint, field.name) for field in fields(ServerRun)},
        ended=replace(end, at=None),
        ended_at=end.at,
        time_to_service_s={phase.removesuffix("_s"): taken for phase, taken in endpoint.phases.items()},
        uptime_s=_seconds_between(endpoint.ready_at, end.at),
        gpu_hours=_gpu_hours(endpoint.gpus, endpoint.started_at, end.at),
        trials=TrialCounts(n=len(records), ok=sum(load is not None and load.ok for load in records)),
        kv_tokens=counted_kv_tokens(folder, counted_by),
    )
    write(folder.record, record)
    for log in folder.root.rglob("*.log"):
        hide_in_log(log, secrets)
    return record


def stop_all(results_root: Path) -> int:
    """End every server whose results lie below `results_root`; return how many ran."""
    running = [control for control in supervisors_below(results_root) if is_alive(control)]
    for control in running:
        request_stop(control, "stop")
    for control in running:
        wait_until_gone(control, STOP_WAIT_S)
    return len(running)


def sweep(results_root: Path) -> list[Path]:
    """Remove every endpoint.json and warmup.json of a deployment without a live supervisor; return their paths.

    Also ends processes of this node that a killed supervisor and its killed guard left behind.
    """
    removed = []
    for root in sorted(path for pattern in DEPLOYMENTS for path in results_root.glob(f"{pattern}/")):
        folder = DeploymentFolder(root=root)
        stale = [path for path in (folder.endpoint, folder.warmup) if path.exists()]
        if not stale and not folder.runtime.exists():
            continue
        control = control_files_of(folder)
        if control.heartbeat.exists() and not is_alive(control):
            kill_strays(control)
        if stale and not alive(folder):
            for path in stale:
                path.unlink(missing_ok=True)
            removed += stale
    return removed


def _start_and_wait(spec: LaunchSpec, control: ControlFiles, parent_pid: int) -> Endpoint:
    supervisor = spawn_supervisor(spec, control)
    beside = spec.folder.root.parent.glob("*/.keeper/lease") if spec.folder.root.parent.name == MEMBERS else ()
    leases = {control.lease, *beside}  # other members wait for this one, which may take longer than a lease
    renewed = time.monotonic()
    orphaned = False
    try:
        while True:
            if not orphaned and os.getppid() != parent_pid:
                orphaned = True
                write_control_file(control.stop_request, StopRequest(why="interrupted"))
            if answer := read_or_none(control.answer, Endpoint):
                if not orphaned:
                    return answer
                reason = "The run that started this server has ended."
                return replace(answer, status="failed", category="interrupted", reason=reason)
            if supervisor.poll() is not None:
                return read_or_none(control.answer, Endpoint) or _supervisor_lost(
                    spec, control, supervisor.returncode
                )
            time.sleep(0.02)
            if not orphaned and time.monotonic() - renewed > 1.0:
                for lease in leases:
                    touch(lease)
                renewed = time.monotonic()
    except BaseException:
        write_control_file(control.stop_request, StopRequest())
        raise


def spawn_supervisor(spec: LaunchSpec, control: ControlFiles) -> "subprocess.Popen[bytes]":
    """Start the supervisor of a deployment in a session of its own; its output is its log."""
    environment = {
        **os.environ,
        # also for its telemetry and its driver's hooks
        **(gpu_variables(spec.place.gpus, spec.place.share) if spec.place else {}),
        MARK: str(control.root),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(PACKAGE_ROOT), os.environ.get("PYTHONPATH")))),
    }
    with control.log.open("ab") as log:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "seamark.services.supervisor.supervisor", str(spec.folder.root)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    assert supervisor.stdin is not None
    try:
        supervisor.stdin.write(pickle.dumps(spec))
        supervisor.stdin.close()
    except BrokenPipeError:
        pass
    return supervisor


def _supervisor_lost(spec: LaunchSpec, control: ControlFiles, returncode: int) -> Endpoint:
    reason = f"The supervisor ended with {returncode} before it could report; its log is {control.log}."
    return _no_answer(spec.deployment, spec.service, spec.site, reason, log_tail(control.log))


def _no_answer(
    deployment: Deployment, service: Service, site: Site, reason: str, log_tail: Sequence[str] = ()
) -> Endpoint:
    return Endpoint(
        schema_version=SCHEMA_VERSION,
        status="failed",
        category="setup_failed",
        reason=reason,
        log_tail=tuple(log_tail),
        deployment=deployment.id,
        service=service.name,
        runtime=site.runtime,
        host=site.address,
        node=node(),
        slurm_job_id=allocation(),
        gpus=deployment.gpus,
        started_at=timestamp(),
    )


def _make_room(folder: DeploymentFolder, evict: bool) -> None:
    """End servers that would share this node with a new one: its predecessor, and others of this user but the members
    of its own deployment."""
    ours = control_files_of(folder)
    siblings = ours.root.parents[1] if folder.root.parent.name == MEMBERS else None
    for control in supervisors_below(folder.results) if evict else ():
        if control.root != ours.root and control.root.parents[1] == siblings:
            continue
        heartbeat = read_heartbeat(control)
        beside = heartbeat and (heartbeat.node, heartbeat.allocation) == (node(), allocation())
        if (beside or control.root == ours.root) and is_alive(control):
            request_stop(control, "evicted")
            wait_until_gone(control, STOP_WAIT_S)
    kill_strays(ours)
    ours.heartbeat.unlink(missing_ok=True)


def _seconds_between(start: str | None, end: str | None) -> float | None:
    if not start or not end:
        return None
    return round((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds(), 3)


def _gpu_hours(gpus: int | None, start: str | None, end: str | None) -> float | None:
    taken_s = _seconds_between(start, end)
    return None if taken_s is None or gpus is None else gpus * taken_s / 3600


START_UP_BYTES = 4 << 20
"""Part of a server's log, and of its telemetry, in which its counts are looked for."""
MOST_DIGITS = 15
BLOCKS = ("num_gpu_blocks", "block_size")
"""Labels whose product is the number of tokens."""


def counted_kv_tokens(folder: DeploymentFolder, declared: GpuMemory | None) -> int | None:
    """Return the tokens by the metric and by the line of the log that a recipe declares, None where both are missing.

    The fewest count, of several engines or starts and of metric and line: the metric of vLLM has the blocks of all
    groups of layers, and a token needs one of each group.
    """
    if declared is None:
        return None
    found = [
        *_in_log(folder.server_log, declared.tokens_line),
        *_in_metrics(folder.telemetry, declared.tokens_metric),
    ]
    return min(found, default=None)


def _in_log(log: Path, tokens_line: str | None) -> Iterator[int]:
    if tokens_line is not None:
        for text in re.findall(tokens_line, _beginning_of(log)):
            yield from _number(re.sub(r"\D", "", text))


def _in_metrics(telemetry: Path, metric: str | None) -> Iterator[int]:
    """Yield the product of the labels BLOCKS of each sample of a metric; a server may not know them yet ("None")."""
    if metric is None:
        return
    for line in _beginning_of(telemetry).splitlines():
        if metric not in line:
            continue
        cells = next(csv.reader([line]))
        name, _, labels = cells[2].partition("{") if len(cells) > 2 else ("", "", "")
        values = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if name == metric and all(values.get(label, "").isdecimal() for label in BLOCKS):
            yield from _number(str(int(values[BLOCKS[0]]) * int(values[BLOCKS[1]])))


def _number(digits: str) -> Iterator[int]:
    if 0 < len(digits) <= MOST_DIGITS and int(digits):
        yield int(digits)


def _beginning_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(START_UP_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""
