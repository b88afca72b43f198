"""Which GPUs of a job are a deployment's own, where several share a node. Held by locks of files on that node."""

import os
from contextlib import ExitStack

from seamark.dispatch.identity import allocation
from seamark.services.supervisor.failure import FailedError
from seamark.services.supervisor.node_locks import lock_at_once


def claim_gpus(count: int, held: ExitStack) -> None:
    """Let this process and its children see `count` GPUs of CUDA_VISIBLE_DEVICES that no other deployment has.

    They are given back when `held` closes or the process ends. Raises FailedError when too few are free.
    """
    listed = [word.strip() for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()]
    chosen: list[str] = []
    for word in listed:
        if len(chosen) < count and _claimed(word, held):
            chosen.append(word)
    if len(chosen) < count:
        free = f"{len(chosen)} of the job's {len(listed)} GPUs are free"
        raise FailedError("setup_failed", f"a deployment that shares its node needs {count} GPUs, but {free}.")
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(chosen)


def _claimed(gpu: str, held: ExitStack) -> bool:
    lock = lock_at_once(f"gpu-{allocation() or 'here'}-{gpu}.lock")
    if lock is not None:
        held.callback(lock.close)
    return lock is not None
