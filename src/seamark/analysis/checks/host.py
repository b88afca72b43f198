"""Checks of the machine: whether its processors were busy, and with whose work."""

from seamark.analysis.checks.findings import Findings, Processors, Reason

FULL = 0.9
"""Busy share of a machine from which on load and server may wait for a processor."""
OTHERS, OTHERS_OF_FULL = 0.2, 0.1
"""Share of others from which on a trial is SUSPECT: of any machine, and of a full one."""
STEAL = 0.05


def host_cpu_saturated(found: Findings) -> Reason | None:
    """Whatever shares the cores slows each other: a faster client a server, and the other way round."""
    if found.machine_cpu_ratio is None or found.machine_cpu_ratio <= FULL or found.client_is_server:
        return None
    own = next((each for each in found.processors if each.node is None), None)
    return Reason(
        code="host_cpu_saturated",
        severity="note",
        text=f"the machine's processors were {found.machine_cpu_ratio:.0%} busy{_shares(own) if own else ''}",
        remedy="Compare only with results of the same machine, or load from another one.",
    )


def busy_elsewhere(found: Findings) -> Reason | None:
    """What others use of the processors the load and the server do not have, and nothing tells how much they lost."""
    for each in found.processors:
        crowded = each.others >= (OTHERS_OF_FULL if each.busy > FULL else OTHERS)
        if crowded or each.steal >= STEAL:
            return Reason(
                code="busy_elsewhere",
                severity="suspect",
                text=_seen(each, crowded=crowded),
                remedy="Measure when nothing else runs there, or on a node of your own; "
                "`bench retry TRIAL` measures the trial again.",
            )
    return None


def _seen(one: Processors, *, crowded: bool) -> str:
    where = "the machine" if one.node is None else one.node
    seen = []
    if crowded:
        seen.append(f"others used {one.others:.0%} of the processors of {where} during the window{_shares(one)}")
    if one.steal >= STEAL:
        seen.append(f"a hypervisor gave {one.steal:.0%} of the time of the processors of {where} to others (steal)")
    if one.waiting is not None:
        seen.append(f"some task waited for a processor {one.waiting:.0%} of the time")
    if one.load_average is not None:
        of = "" if one.count is None else f" on {one.count} processors"
        seen.append(f"the load average was {one.load_average:.3g}{of}")
    return "; ".join(seen)


def _shares(one: Processors) -> str:
    known = [(name, value) for name, value in (("load", one.load), ("server", one.server)) if value is not None]
    return "".join(f", the {name} {value:.0%}" for name, value in known)
