"""What the metadata of executions say of their machine: inside which GPUs windows lie, and when GPUs were gone."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
AWAY = {"failed": "repaired", "removed": "added"}
"""A change by which a GPU goes, and that by which it comes back from it."""


@dataclass(frozen=True, kw_only=True)
class Gone:
    """Intervals in which a GPU was not there, shape (intervals,); the end of one that never came back is infinite."""

    gpu: Ints
    begin_s: Floats
    end_s: Floats


def domains_of(facts: Mapping[str, Any], gpus: int) -> Ints:
    """Return by GPU the number of the GPUs inside which its windows lie: those of its host, or all. Raises ValueError
    for hosts that have other GPUs."""
    machine = facts.get("machine") or {}
    if machine.get("span_hosts") or not machine.get("hosts"):
        return np.zeros(gpus, np.int64)
    counts = [int(host["gpus"]) for host in machine["hosts"]]
    if sum(counts) != gpus or min(counts) < 0:
        raise ValueError(f"its hosts have {sum(counts)} GPUs, and not {gpus}")
    return np.repeat(np.arange(len(counts)), counts)


def gone_of(facts: Mapping[str, Any], gpus: int) -> Gone:
    """Return when GPUs were gone. Raises ValueError for a GPU that the machine does not have."""
    whys: dict[int, set[str]] = {}
    since_s: dict[int, float] = {}
    spans: list[tuple[int, float, float]] = []
    for change in facts.get("gpu_changes") or ():
        at_s, what = float(change["at_s"]), change["what"]
        for gpu in map(int, change["gpus"]):
            if not 0 <= gpu < gpus:
                raise ValueError(f"it has a change of another GPU than 0 to {gpus - 1}")
            why, was_gone = whys.setdefault(gpu, set()), gpu in since_s
            if what in AWAY:
                why.add(what)
            else:
                why -= {away for away, back in AWAY.items() if back == what}
            if why and not was_gone:
                since_s[gpu] = at_s
            elif was_gone and not why:
                spans.append((gpu, since_s.pop(gpu), at_s))
    spans += [(gpu, begin_s, inf) for gpu, begin_s in since_s.items()]
    return Gone(
        gpu=np.asarray([gpu for gpu, _, _ in spans], np.int64),
        begin_s=np.asarray([begin_s for _, begin_s, _ in spans], np.float64),
        end_s=np.asarray([end_s for _, _, end_s in spans], np.float64),
    )
