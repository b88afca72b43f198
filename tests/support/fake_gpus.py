"""GPUs of tests' own: a child that reports the device it sees, an NVML that tells who reported, an MPS daemon."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

CHILD = """
seen="$SEEN/$CUDA_VISIBLE_DEVICES"
if [ -e "$CUDA_MPS_PIPE_DIRECTORY/daemon" ]; then
    mkdir -p "$CUDA_MPS_PIPE_DIRECTORY/clients" "$seen.mps"
    touch "$CUDA_MPS_PIPE_DIRECTORY/clients/$$" "$seen.mps/$$"
else
    mkdir -p "$seen"
    touch "$seen/$$"
fi
echo
exec sleep 60
"""
CONTROL = """#!/bin/sh
pipes=$CUDA_MPS_PIPE_DIRECTORY
if [ "$1" = -f ]; then
    echo "$CUDA_VISIBLE_DEVICES" > "$pipes/daemon"
    echo began > "$CUDA_MPS_LOG_DIRECTORY/control.log"
    while [ ! -e "$pipes/quit" ]; do sleep 0.05; done
    exit 0
fi
read -r command server client
[ -e "$pipes/daemon" ] || { echo "Cannot find MPS control daemon process"; exit 1; }
case $command in
    get_server_list) echo 4242 ;;
    get_client_list) ls "$pipes/clients" 2> /dev/null ;;
    get_default_active_thread_percentage) echo 100.0 ;;
    terminate_client) kill -0 "$client" && echo "$server $client" >> "$pipes/../terminated" ;;
    quit) touch "$pipes/quit" ;;
esac
"""


def install_control(folder: Path) -> str:
    """Write the MPS control program; return a PATH with it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nvidia-cuda-mps-control").write_text(CONTROL)
    (folder / "nvidia-cuda-mps-control").chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def nvml_of(seen: Path, gpus: Mapping[str, Mapping[str, str]]) -> ModuleType:
    """Return a pynvml whose handles are UUIDs. `gpus` has the profile of each MIG slice by its UUID, {} for a whole
    GPU. Processes are the files in `seen/UUID`, clients of MPS in `seen/UUID.mps`, those at work in
    `seen/UUID.busy`."""
    nvml: Any = ModuleType("pynvml")

    class NVMLError(Exception):
        pass

    def mode(handle: str) -> list[int]:
        if not gpus.get(handle):
            raise NVMLError("not supported")
        return [1, 1]

    def part(handle: str, number: int) -> str:
        if number % 2 == 0 or number // 2 >= len(gpus[handle]):
            raise NVMLError("not found")
        return list(gpus[handle])[number // 2]

    def name(handle: str) -> str:
        profiles = [slices[handle] for slices in gpus.values() if handle in slices]
        return f"NVIDIA A100-SXM4-40GB MIG {profiles[0]}" if profiles else "NVIDIA A100-SXM4-40GB"

    def processes(kind: str) -> Any:
        def listed(handle: str, *since_us: int) -> list[SimpleNamespace]:
            folder = seen / f"{handle}{kind}"
            return [SimpleNamespace(pid=int(file.name), smUtil=50) for file in folder.glob("*")]

        return listed

    nvml.NVMLError = NVMLError
    nvml.nvmlInit = lambda: None
    nvml.nvmlDeviceGetCount = lambda: len(gpus)
    nvml.nvmlDeviceGetHandleByIndex = lambda index: list(gpus)[index]
    nvml.nvmlDeviceGetHandleByUUID = nvml.nvmlDeviceGetUUID = str
    nvml.nvmlDeviceGetName = name
    nvml.nvmlDeviceGetMigMode = mode
    nvml.nvmlDeviceGetMaxMigDeviceCount = lambda handle: 7
    nvml.nvmlDeviceGetMigDeviceHandleByIndex = part
    nvml.nvmlDeviceGetComputeRunningProcesses = processes("")
    nvml.nvmlDeviceGetMPSComputeRunningProcesses = processes(".mps")
    nvml.nvmlDeviceGetProcessUtilization = processes(".busy")
    return nvml
