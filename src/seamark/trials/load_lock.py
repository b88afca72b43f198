"""Lock of a node under load: one load at a time, since two would disturb each other."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from seamark.errors import SiteError
from seamark.model.results.deployment_record import LockHolder, Waiting
from seamark.model.trial import SCHEMA_VERSION
from seamark.platform.process_tree import exit_on_signals
from seamark.services.supervisor.device_locks import device_of_lane
from seamark.services.supervisor.node_locks import locked, node_folder
from seamark.storage.documents import write
from seamark.trials.deployment_context import DeploymentContext
from seamark.trials.permissions import user_named

RENEW_S = 1.0
"""Age at which waiting.json is written again; readers ignore a much older one."""


@contextmanager
def exclusive_load(context: DeploymentContext, parent_pid: int) -> Iterator[None]:
    """Wait until no other load of this user runs on this node; raise SystemExit when the waiting run has ended.

    If deployments share nodes, only loads of the same one exclude each other. Lanes have locks by device
    (device_locks.py); here their loads exclude only one that needs the whole node. Loads of other users are not
    waited for: they may never end, and the checks report them as work of others. waiting.json names the holder of the
    lock during a longer wait. Inside, SIGTERM raises SystemExit, so that the processes of the load end with this one.
    """

    def on_wait() -> None:
        if reason := context.abandoned(parent_pid):
            raise SystemExit(reason)

    suffix = f"-{context.deployment.id}" if context.site.placement == "share" else ""
    own = LockHolder(pid=os.getpid(), user=user_named(os.getuid()), study=str(context.study.root))
    try:
        node_folder()
    except SiteError as lacking:
        raise SystemExit(str(lacking)) from None
    try:
        with locked(
            f"load{suffix}.lock",
            own,
            on_wait,
            lambda holder: write_waiting(context.folder.waiting, holder),
            shared=device_of_lane() is not None,
        ):
            context.folder.waiting.unlink(missing_ok=True)
            with exit_on_signals(signal.SIGTERM):
                yield
    finally:
        context.folder.waiting.unlink(missing_ok=True)


@contextmanager
def exclusive_run(study: Path, on_report: Callable[[LockHolder], object]) -> Iterator[None]:
    """Hold the lock of this node's loads outside of a study's trials, after a wait for the one that runs.

    `on_report` gets its holder during a longer wait. Raises SiteError where this node's locks have no folder.
    """
    own = LockHolder(pid=os.getpid(), user=user_named(os.getuid()), study=str(study))
    with locked("load.lock", own, lambda: None, on_report):
        yield


def write_waiting(path: Path, holder: LockHolder) -> None:
    """Report the holder of the lock: once in the log of the job, and in waiting.json at `path` during the wait."""
    if not path.exists():
        print(f"Waiting for another load on this node: {holder}.", file=sys.stderr, flush=True)
    elif time.time() - path.stat().st_mtime < RENEW_S:
        return
    write(path, Waiting(schema_version=SCHEMA_VERSION, holder=holder))
