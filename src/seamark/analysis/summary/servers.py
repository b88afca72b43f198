"""Servers that the trials of a summary were measured on, by their load.json, and the reasons of several ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase

from seamark.analysis.trial_view import TrialView
from seamark.model.plurals import counted
from seamark.model.results.summary import CountedReason, ServerSummary
from seamark.model.results.trial_metrics import Severity
from seamark.model.server_identity import ServerRecord

RECORDED = ("digest", "runtime", "site", "machine", "partition", "address", "image_digests")


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server by its service, and the digests of its identity and images; without them it was not recorded."""

    service: str
    digest: str | None = None
    images: str = ""


class ComparedServers:
    """Which trial was measured on which server. Servers are called A, B, ... in the order of their first trials."""

    def __init__(self) -> None:
        self._origins: dict[str, tuple[Server, bool]] = {}  # and whether it is of the configuration of the plan
        self._trials: dict[Server, list[str]] = {}
        self._known: dict[Server, ServerRecord] = {}

    def add(self, view: TrialView) -> None:
        """Note where a good trial was measured; of one without a readable load.json nothing is known."""
        trial, load = view.trial, view.load
        known = load.server_identity if load else None
        server = Server(service=trial.service)
        if known is not None:
            server = Server(service=trial.service, digest=known.digest, images=repr(known.image_digests or {}))
        planned = load is None or load.config_hash in (None, trial.config_hash)
        self._origins[trial.id] = server, planned
        self._trials.setdefault(server, []).append(trial.id)
        if known is not None:
            self._known.setdefault(server, known)

    def summaries(self) -> tuple[ServerSummary, ...]:
        """Return all servers with their names and numbers of trials."""
        summaries = []
        for server, name in self._names().items():
            summary = ServerSummary(name=name, service=server.service, trials=len(self._trials[server]))
            if (record := self._known.get(server)) is not None:
                facts = {fact: getattr(record, fact) for fact in RECORDED}
                summary = replace(summary, place=record.place, **facts)
            summaries.append(summary)
        return tuple(summaries)

    def names_of(self, trials: Sequence[str]) -> list[str | None]:
        """Return the name of each trial's server, None for those that are not good."""
        names = self._names()
        return [names[self._origins[trial][0]] if trial in self._origins else None for trial in trials]

    def several(self, trials: Sequence[str]) -> bool:
        """Return whether these trials are of more than one server of a service, as far as they know theirs."""
        servers = {self._origins[trial][0] for trial in trials if trial in self._origins}
        services = [server.service for server in servers if server.digest is not None]
        return len(services) > len({*services})

    def reasons(self, own: Sequence[str], group: Sequence[str]) -> list[CountedReason]:
        """Return what stands against a treatment with these trials, `own`, among those it is compared with.

        Trials that know no server are no reason: they are named with the servers.
        """
        reasons, mine = [], [self._origins[trial] for trial in own if trial in self._origins]
        if len({(server, planned) for server, planned in mine if server.digest}) > 1:
            text = f"its repetitions are of {self._listed(own)}"
            reasons.append(_reason("servers_mixed", "invalid", text, len(mine)))
        elif mine and self.several(group):
            text = f"treatments that are compared were measured on {self._listed(group)}"
            reasons.append(_reason("servers_differ", "suspect", text, len(mine)))
        if changed := sum(not planned for _, planned in mine):
            text = f"{counted(changed, 'trial')} of it: measured with another configuration than the plan has now"
            reasons.append(_reason("configuration_differs", "suspect", text, changed))
        return reasons

    def _names(self) -> dict[Server, str]:
        return {server: _letters(number) for number, server in enumerate(self._trials)}

    def _listed(self, trials: Sequence[str]) -> str:
        names = self._names()
        servers = dict.fromkeys(self._origins[trial][0] for trial in trials if trial in self._origins)
        places = [f"{names[server]}, {self._known[server].place}" for server in servers if server in self._known]
        return "; ".join(places) if len(places) > 1 else f"several configurations on {'; '.join(places)}"


def _letters(number: int) -> str:
    """Return A to Z, then AA, AB and so on."""
    more, last = divmod(number, len(ascii_uppercase))
    return (_letters(more - 1) if more else "") + ascii_uppercase[last]


def _reason(code: str, severity: Severity, text: str, count: int) -> CountedReason:
    remedy = (
        "Keep results of different servers in folders of their own, or measure all of them on one:"
        " `bench submit --measure-anew`."
    )
    return CountedReason(code=code, severity=severity, text=text, remedy=remedy, count=count)
