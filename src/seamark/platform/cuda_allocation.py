"""Whether a GPU can be used: a process of its own allocates a MiB on it by the CUDA driver, without any framework.

The process sees that GPU alone, so nothing of a context stays in the caller, and a GPU that hangs ends with it.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

ALLOCATED_BYTES = 1 << 20
TIMEOUT_S = 60.0
NO_DRIVER = 3
"""Exit code where there is no CUDA driver, so that nothing is known of the GPU."""


def cuda_problem(gpu: str) -> str | None:
    """Return why nothing can be allocated on a GPU, by index (in the order of bus ids) or UUID; None if it can, and
    where this cannot be told."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    command = [sys.executable, "-I", __file__]
    attempt = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    try:
        text, _ = attempt.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        attempt.kill()  # and no wait for its end: a driver that hangs may hold it in the kernel
        return f"it did not answer within {TIMEOUT_S:g} s"
    if attempt.returncode in (0, NO_DRIVER):
        return None
    return (text.strip() or f"exit code {attempt.returncode}").splitlines()[-1]


def allocation_error(driver: Any) -> str | None:
    """Allocate on the first GPU that the CUDA driver shows, and free it again; return the name of an error."""
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    steps: tuple[Callable[[], int], ...] = (
        lambda: driver.cuInit(0),
        lambda: driver.cuDeviceGet(ctypes.byref(device), 0),
        lambda: driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
        lambda: driver.cuCtxSetCurrent(context),
        lambda: driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(ALLOCATED_BYTES)),
        lambda: driver.cuMemFree_v2(memory),
        lambda: driver.cuDevicePrimaryCtxRelease_v2(device),
    )
    for step in steps:
        if code := step():
            return _name(driver, code)
    return None


def _name(driver: Any, code: int) -> str:
    text = ctypes.c_char_p()
    driver.cuGetErrorName(code, ctypes.byref(text))
    return text.value.decode(errors="replace") if text.value else f"CUDA error {code}"


def main() -> int:
    """Try the allocation; print the name of an error."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return NO_DRIVER
    error = allocation_error(driver)
    if error is not None:
        print(error)
    return 0 if error is None else 1


if __name__ == "__main__":
    sys.exit(main())
