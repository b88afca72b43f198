"""What tells one machine from another, whatever their names are."""

import os
from pathlib import Path


def machine() -> str:
    """Return this machine's boot and the namespace of its process ids: who has both the same sees our processes."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115
