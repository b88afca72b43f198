"""The servers that a summary's trials were measured on: for the head of a report, and as a mark of several."""

from collections.abc import Mapping, Sequence
from typing import Any

from seamark.model.plurals import counted
from seamark.report.numbers import ABSENT

SERVER = "server"
"""The column that tells servers apart. It stands among the factors."""
DIGITS = 8
NOT_RECORDED = "server identity not recorded"

Document = Mapping[str, Any]


def mixed(summary: Document) -> bool:
    """Return whether trials of one service were measured on several servers, or on one and on none that is known."""
    services = [server["service"] for server in summary.get("servers") or ()]
    return len(services) > len(set(services))


def marks(summary: Document) -> dict[str, str]:
    """Return the server of each treatment, `A` or `A + B`, where there are several; else nothing."""
    if not mixed(summary):
        return {}
    names = {
        str(each["treatment"]): sorted(filter(None, set(each["trial_servers"]))) for each in summary["treatments"]
    }
    return {treatment: " + ".join(found) or ABSENT for treatment, found in names.items()}


def trial_marks(summary: Document) -> dict[str, str]:
    """Return the server of each good trial, where there are several; else nothing."""
    if not mixed(summary):
        return {}
    return {
        trial: name
        for each in summary["treatments"]
        for trial, name in zip(each["trials"], each["trial_servers"], strict=True)
        if name
    }


def about_servers(summary: Document) -> list[tuple[str, str]]:
    """Return the line of a report's head that says where its trials were measured; nothing without a good trial."""
    servers = summary.get("servers")
    if servers is None and summary.get("ok"):
        return [("Server", NOT_RECORDED)]
    if not servers:
        return []
    if mixed(summary):
        return [("Servers", "; ".join(f"{each['name']}: {_words(each)}" for each in servers))]
    by_place: dict[str, list[str]] = {}
    for each in servers:
        by_place.setdefault(each["place"] or NOT_RECORDED, []).append(_digest(each))
    return [("Server", "; ".join(f"{place}{_identities(digests)}" for place, digests in by_place.items()))]


def mixture(summary: Document) -> str | None:
    """Return the sentence that warns of several servers, None for one."""
    if not mixed(summary):
        return None
    named = "; ".join(f"{each['name']}: {_words(each)}" for each in summary["servers"])
    return f"These trials were measured on several servers, marked in the column `{SERVER}`. {named}."


def _words(server: Document) -> str:
    trials = counted(int(server["trials"]), "trial")
    if server["place"] is None:
        return f"{server['service']}, {NOT_RECORDED}, {trials}"
    return f"{server['service']} on {server['place']}, identity {str(server['digest'])[:DIGITS]}, {trials}"


def _digest(server: Document) -> str:
    return f"{server['service']} {str(server['digest'])[:DIGITS]}" if server["digest"] else ""


def _identities(digests: Sequence[str]) -> str:
    known = [digest for digest in digests if digest]
    return f", identity: {', '.join(known)}" if known else ""
