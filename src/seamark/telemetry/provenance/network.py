"""The node's InfiniBand ports and network interfaces."""

import re
from pathlib import Path
from typing import Any

from seamark.telemetry.provenance.text import ROOT, number, numbered, text

Facts = dict[str, Any]


def network(root: Path = ROOT) -> Facts:
    """Return InfiniBand (and RoCE) ports, and the speed and MTU of each interface that is up."""
    return {"infiniband": infiniband(root), "interfaces": interfaces(root)}


def infiniband(root: Path = ROOT) -> list[Facts]:
    """Return each port of each adapter: state, rate in bit/s, firmware; none without an adapter."""
    folder = root / "sys/class/infiniband"
    adapters = sorted(folder.iterdir()) if folder.is_dir() else []
    return [_port(adapter, port) for adapter in adapters for port in numbered(adapter / "ports", "")]


def _port(adapter: Path, port: Path) -> Facts:
    rate = text(port / "rate")
    return {
        "adapter": adapter.name,
        "port": int(port.name),
        "type": text(adapter / "hca_type"),
        "board": text(adapter / "board_id"),
        "firmware": text(adapter / "fw_ver"),
        "state": _word(text(port / "state")),
        "physical_state": _word(text(port / "phys_state")),
        "link_layer": text(port / "link_layer"),
        "rate": rate,
        "rate_bit_per_s": _bits(rate),
    }


def _word(state: str | None) -> str | None:
    """Return the name in `4: ACTIVE`."""
    return None if state is None else state.partition(":")[2].strip() or state


def _bits(rate: str | None) -> float | None:
    """Return bit/s of `200 Gb/sec (4X HDR)`."""
    found = re.match(r"([\d.]+)\s*Gb/sec", rate or "")
    return None if found is None else float(found.group(1)) * 1e9


def interfaces(root: Path = ROOT) -> list[Facts]:
    """Return name, driver, speed in bit/s and MTU in bytes of the interfaces that are up, the loopback aside."""
    folder = root / "sys/class/net"
    found = []
    for each in sorted(folder.iterdir()) if folder.is_dir() else []:
        if each.name == "lo" or text(each / "operstate") == "down":
            continue
        speed = number(each / "speed")
        driver = each / "device/driver"
        found.append(
            {
                "name": each.name,
                "driver": driver.resolve().name if driver.exists() else None,
                "speed_bit_per_s": speed * 1e6 if speed is not None and speed > 0 else None,
                "mtu_bytes": number(each / "mtu"),
            }
        )
    return found
