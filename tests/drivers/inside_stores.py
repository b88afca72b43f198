"""What test_vector_stores.py asks in the environment of a store. Every answer is JSON."""

import os
import signal
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from seamark.load.driver import Target


def killed_and_again(driver: str, where: dict[str, Any], after_s: float) -> Any:
    """Fill a store in a process, kill that `after_s` after its data set is there, and fill the store again; give how
    the first one ended, and the quality of the second."""
    target = Target(settings=where["settings"], data=Path(where["data"]), ports=where["ports"])
    hooks = import_module(driver).HOOKS
    fill, truth = hooks.populate or hooks.stage, target.data / "truth.npy"
    truth.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        fill(target, 7)
        os._exit(0)
    while not truth.exists():
        time.sleep(0.005)
    time.sleep(after_s)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    facts = fill(target, 7)
    return {"killed": os.WIFSIGNALED(status), "vectors": facts["vectors"], **hooks.quality(target, 7)}
