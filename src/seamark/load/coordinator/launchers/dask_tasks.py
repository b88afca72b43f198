"""Submits the workers of a load to a Dask cluster, one long task each: `main([])`, with its launch spec in
SEAMARK_CARRIED. A failure is printed as a line `failed`."""

import json
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any

from seamark.load.coordinator.launchers import task
from seamark.load.coordinator.launchers.task import LAUNCH_SPEC
from seamark.platform.process_tree import die_with_parent

CONNECT_S = 10.0


def main(argv: list[str]) -> int:
    """Submit the tasks and wait for their end."""
    spec = json.loads(os.environ.pop(LAUNCH_SPEC))
    die_with_parent(spec["parent"])
    try:
        import distributed
    except ImportError as error:
        print(f"failed {sys.executable} has no package 'distributed' ({error}): correct carrier_python")
        return 1
    try:
        client = distributed.Client(spec["address"], timeout=CONNECT_S)
    except (OSError, ValueError) as error:
        print(f"failed no Dask scheduler answers at {spec['address']} ({error or type(error).__name__})")
        return 1
    with client:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        threads = {address: (str(worker["host"]), int(worker["nthreads"])) for address, worker in workers.items()}
        places = spread(threads, spec["workers"])
        if places is None:
            have = sum(count for _, count in threads.values())
            print(
                f"failed {spec['workers']} shards were requested, but the cluster at {spec['address']} has {have} "
                f"threads in {len(threads)} workers: start more, or lower shards"
            )
            return 1
        load = secrets.token_hex(4)
        tasks = [
            client.submit(
                Whole(task.run_worker),
                spec | {"worker": worker},
                workers=[place],
                allow_other_workers=False,
                pure=False,
                retries=0,
                key=f"seamark-shard-{load}-{worker}",
            )
            for worker, place in enumerate(places)
        ]
        distributed.wait(tasks)
        lost = [
            f"shard {worker}: {task_future.exception()}"
            for worker, task_future in enumerate(tasks)
            if task_future.status != "finished"
        ]
    if lost:
        print(f"failed {'; '.join(lost)}")
    return 1 if lost else 0


class Whole:
    """A function sent by value, where Dask would send its name: the cluster need not have this package."""

    def __init__(self, function: Callable[..., Any]) -> None:
        import cloudpickle

        cloudpickle.register_pickle_by_value(sys.modules[function.__module__])
        self._function = function
        self._reduced = cloudpickle.loads, (cloudpickle.dumps(function),)

    def __call__(self, *arguments: Any) -> Any:
        """Call the function locally."""
        return self._function(*arguments)

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        """Unpickle as the function itself."""
        return self._reduced


def spread(threads: Mapping[str, tuple[str, int]], count: int) -> list[str] | None:
    """Return a Dask worker for each of `count` shards, by each worker's host and number of threads: round robin over
    hosts, and over the workers of a host. None if there are too few threads."""
    slots: dict[str, list[str]] = {}
    for layer in range(max((number for _, number in threads.values()), default=0)):
        for address, (host, number) in sorted(threads.items()):
            if layer < number:
                slots.setdefault(host, []).append(address)
    in_turn = [address for row in zip_longest(*slots.values()) for address in row if address is not None]
    return in_turn[:count] if len(in_turn) >= count else None
