"""Environment variables that bound a process: threads of numerical libraries, GPUs. Libraries read them at import.

Each library also has a setting of its own, so that a variable that a user has set for one of them does not win.
"""

from collections.abc import Iterable

CUDA = "CUDA_VISIBLE_DEVICES"
ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""Makes CUDA count GPUs as NVML, telemetry and batch systems do; its own order is by speed."""
THREADS = "OMP_NUM_THREADS"
OF_LIBRARIES = (THREADS, "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def thread_variables(threads: int | None) -> dict[str, str]:
    """Return the variables that limit numerical libraries to so many threads; none for None."""
    return {} if threads is None else dict.fromkeys(OF_LIBRARIES, str(threads))


def gpu_variables(gpus: Iterable[int] | None) -> dict[str, str]:
    """Return the variables with which a process sees these GPUs only, () for none of them; no variable for None."""
    return {} if gpus is None else {**ORDER, CUDA: ",".join(map(str, gpus))}
