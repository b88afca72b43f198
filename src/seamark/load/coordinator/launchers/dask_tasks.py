"""Hands the workers of a load to a Dask cluster as one long task each: `main([])`, with its order in
SEAMARK_CARRIED. What it cannot do it says on its output, in a line `failed`."""

import json
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any

from seamark.load.coordinator.launchers import task
from seamark.load.coordinator.launchers.task import ORDER
from seamark.platform.parent_death import die_with_parent

CONNECT_S = 10.0


def main(argv: list[str]) -> int:
    """Run the tasks and wait for their end."""
    order = json.loads(os.environ.pop(ORDER))
    die_with_parent(order["parent"])
    try:
        import distributed
    except ImportError as error:
        print(f"failed {sys.executable} has no package 'distributed' ({error}): correct carrier_python")
        return 1
    try:
        client = distributed.Client(order["address"], timeout=CONNECT_S)
    except (OSError, ValueError) as error:
        print(f"failed no Dask scheduler answers at {order['address']} ({error or type(error).__name__})")
        return 1
    with client:
        known = client.scheduler_info(n_workers=-1)["workers"]
        threads = {address: (str(each["host"]), int(each["nthreads"])) for address, each in known.items()}
        places = spread(threads, order["workers"])
        if places is None:
            have = sum(count for _, count in threads.values())
            print(
                f"failed {order['workers']} shards were asked for, and the cluster at {order['address']} has {have} "
                f"threads in {len(threads)} workers: start more, or lower shards"
            )
            return 1
        load = secrets.token_hex(4)
        tasks = [
            client.submit(
                Whole(task.carry),
                order | {"worker": worker},
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
            f"shard {worker}: {each.exception()}" for worker, each in enumerate(tasks) if each.status != "finished"
        ]
    if lost:
        print(f"failed {'; '.join(lost)}")
    return 1 if lost else 0


class Whole:
    """A function that is sent as a whole, where Dask would send its name: the cluster need not have our package."""

    def __init__(self, function: Callable[..., Any]) -> None:
        import cloudpickle

        cloudpickle.register_pickle_by_value(sys.modules[function.__module__])
        self._function = function
        self._reduced = cloudpickle.loads, (cloudpickle.dumps(function),)

    def __call__(self, *arguments: Any) -> Any:
        """Call it here."""
        return self._function(*arguments)

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        """Be the function itself, on the other side."""
        return self._reduced


def spread(threads: Mapping[str, tuple[str, int]], count: int) -> list[str] | None:
    """Return a Dask worker for each of `count` shards, given each worker's host and number of threads: shards go to
    the hosts in turn, and on a host to its workers in turn. None when there are too few threads."""
    slots: dict[str, list[str]] = {}
    for layer in range(max((number for _, number in threads.values()), default=0)):
        for address, (host, number) in sorted(threads.items()):
            if layer < number:
                slots.setdefault(host, []).append(address)
    in_turn = [address for row in zip_longest(*slots.values()) for address in row if address is not None]
    return in_turn[:count] if len(in_turn) >= count else None
