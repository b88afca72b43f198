"""A lane whose units sleep for a known time: `python lane_process.py LIST ORDER CPUS PER_DEVICE RUN`.

It begins with the first line of its standard input, and prints a line of JSON for each unit: when it begins, with
what a child of it sees, and at the end with the times of all.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from seamark.dispatch.claim_list import Claim, ClaimList
from seamark.dispatch.order import Order, Unit, order_of
from seamark.services.supervisor.device_locks import Device, DevicePool, DeviceSlot, SlotHolder
from seamark.storage.paths import ScenarioFolder
from seamark.trials.lane import work_off
from seamark.trials.lane_device import kept_to

CHILD = """
import json, os
names = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "SEAMARK_DEVICE")
print(json.dumps({"cpus": sorted(os.sched_getaffinity(0)), **{name: os.environ.get(name) for name in names}}))
"""


class TimedClaims(ClaimList):
    """A list that knows when it was last asked for a unit."""

    asked_unix_s = 0.0

    def claim(self, order: Order) -> Claim | None:
        self.asked_unix_s = time.time()
        return super().claim(order)


def main() -> None:
    root, order, words, per_device, run = sys.argv[1:]
    kind, _, ids = words.partition("=")
    devices = [Device(kind="gpu" if kind == "gpu" else "cpu", id=each) for each in ids.split(",")]
    pool = DevicePool(devices, int(per_device))
    claims = TimedClaims(Path(root), ClaimList.open(Path(root)).units())
    made: list[dict[str, object]] = []
    print("ready", flush=True)
    sys.stdin.readline()

    def run_unit(unit: Unit, slot: DeviceSlot) -> None:
        times = {"claimed_unix_s": claims.asked_unix_s, "began_unix_s": time.time()}
        began_s = time.monotonic()
        with kept_to(slot, pool):
            child = subprocess.Popen([sys.executable, "-S", "-c", CHILD], stdout=subprocess.PIPE, text=True)
            sees, _ = child.communicate()
        print(json.dumps({"unit": unit.id, "device": str(slot.device), "sees": json.loads(sees)}), flush=True)
        time.sleep(max(0.0, unit.estimated_s - (time.monotonic() - began_s)))
        made.append({"unit": unit.id, "device": str(slot.device), **times, "ended_unix_s": time.time()})

    work_off(
        claims,
        order_of(order),
        pool,
        SlotHolder(pid=os.getpid(), run=run),
        ScenarioFolder(root=Path(root).parent),
        run_unit,
    )
    for each in made:
        print(json.dumps(each), flush=True)


if __name__ == "__main__":
    main()
