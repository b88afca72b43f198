"""What is read of a real NVIDIA GPU. Skipped where there is none; not run on the machines this was written on."""

import pytest

from seamark.telemetry.gpu import Gpus


def readings() -> dict[str, float]:
    """Return what NVML says of the first GPU, by name; skip without one."""
    said: list[str] = []
    read = {each.name: each.value for each in Gpus(1, lambda event, **facts: said.append(f"{event} {facts}")).read()}
    if not read:
        pytest.skip(f"no GPU that NVML can read: {' '.join(said)}")
    return read


@pytest.mark.covers("E-MON02", "E-FR09")
def test_a_gpu_tells_its_use_memory_and_power_in_plausible_figures():
    read = readings()
    assert 0 <= read["util_ratio"] <= 1
    assert 0 < read["memory_used_bytes"] < 1e13
    assert 1 < read["power_w"] < 3000
