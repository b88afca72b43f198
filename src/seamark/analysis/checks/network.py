"""Checks of connections: whether this machine had room for them, and whether the server kept them."""

from seamark.analysis.checks.findings import Findings, Reason

MANY_RATIO = 0.8


def few_local_ports(found: Findings) -> Reason | None:
    """Nearly every local port was needed: another load, or connections made again, and there is none."""
    of = found.connections
    if of.ports_free is None or of.asked <= MANY_RATIO * of.ports_free:
        return None
    return Reason(
        code="few_local_ports",
        severity="note",
        text=f"{of.asked} connections to one address, and {of.ports_free} local ports were free for them",
        remedy="Widen net.ipv4.ip_local_port_range, or load from more machines.",
    )


def connection_churn(found: Findings) -> Reason | None:
    """A port that has been used is kept from the same address for a minute."""
    of = found.connections
    if of.churn_per_s_limit is None or of.anew_per_s <= MANY_RATIO * of.churn_per_s_limit:
        return None
    return Reason(
        code="connection_churn",
        severity="suspect",
        text=f"{of.anew_per_s:.4g} connections/s were made anew, and local ports last for "
        f"{of.churn_per_s_limit:.4g}/s: after a minute there are none",
        remedy="Have the server keep connections open, set net.ipv4.tcp_tw_reuse=1, or load from more machines.",
    )


def connected_anew(found: Findings) -> Reason | None:
    """Then times include the way to a new connection."""
    of = found.connections
    if not found.ok or of.anew <= max(of.asked, found.requests // 2):
        return None
    return Reason(
        code="connected_anew",
        severity="note",
        text=f"{of.anew} connections were made while the load ran: the server closes them, and times include "
        "connecting",
        remedy="Have the server keep connections open, if its users would.",
    )


def listen_queue_full(found: Findings) -> Reason | None:
    """Who is turned away tries again after a second, then three, seven, ..."""
    of = found.connections
    if not of.overflows:
        return None
    length = "" if of.backlog is None else f" of {of.backlog}"
    return Reason(
        code="listen_queue_full",
        severity="suspect",
        text=f"a full queue{length} of new connections turned {of.overflows} of them away, for a second or more each",
        remedy="Raise net.core.somaxconn and the server's own backlog above concurrency, or lower concurrency.",
    )
