"""A stand-in for srun: runs the tasks of a step on this machine, each as it is told by FAKE_SRUN.

FAKE_SRUN is a JSON object from a task's number to a command that the task is put behind, as `["unshare", "--time"]`.
"""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path


def main() -> int:
    at = next(k for k, word in enumerate(sys.argv) if k and not word.startswith("-"))
    options, command = sys.argv[1:at], sys.argv[at:]
    if seen := os.environ.get("FAKE_SRUN_SEEN"):
        Path(seen).write_text(json.dumps({"options": options, "environment": dict(os.environ)}))
    count = int(next(option for option in options if option.startswith("--ntasks=")).partition("=")[2])
    before = json.loads(os.environ.get("FAKE_SRUN", "{}"))
    tasks = []
    for k in range(count):
        told = {**os.environ, "SLURM_PROCID": str(k)}
        whole = [*before.get(str(k), []), *command]
        tasks.append(subprocess.Popen(whole, env=told, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    readers = [threading.Thread(target=label, args=(k, task)) for k, task in enumerate(tasks)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return max(abs(task.wait()) for task in tasks)


def label(number: int, task: "subprocess.Popen[str]") -> None:
    assert task.stdout is not None
    for line in task.stdout:
        print(f"{number}: {line}", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
