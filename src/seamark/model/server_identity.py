"""Server identity: the system under test as a value with a digest, and the differences between two of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, Protocol

from seamark.model.digest import digest
from seamark.model.results.values import OPTIONAL

EMPTY: tuple[Any, ...] = (None, "", (), [], {})
BRIEF = ("runtime", "site", "machine", "partition", "address")
LONGEST = 60
MOST_WORDS = 6


@dataclass(frozen=True, kw_only=True)
class ServerRecord:
    """Identity of the server that a deployment's trials are measured on: all that is not in the configuration of a
    trial. load.json has the fields up to `image_digests`, meta.json and endpoint.json have all that are not empty.

    `recipe` and `site_settings` are as written, before paths, ports and variables are filled in, so that another
    user's folders give the same identity; secrets are hidden. `machine` is the node, or the cluster of a batch
    system; with runtime `external` it is that of the load, and `address` is that of the server. `standing` is the
    digest of the request of a persistent server. `image_digests` by role are None where unknown, and no part of the
    digest.
    """

    digest: str
    runtime: str | None = None
    site: str | None = None
    machine: str | None = None
    partition: str | None = None
    address: str | None = None
    image_digests: Mapping[str, str | None] | None = None
    service: str | None = field(default=None, metadata=OPTIONAL)
    version: str | None = field(default=None, metadata=OPTIONAL)
    driver: str | None = field(default=None, metadata=OPTIONAL)
    standing: str | None = field(default=None, metadata=OPTIONAL)
    recipe: Mapping[str, Any] | None = field(default=None, metadata=OPTIONAL)
    site_settings: Mapping[str, Any] | None = field(default=None, metadata=OPTIONAL)
    lock_sha256: str | None = field(default=None, metadata=OPTIONAL)

    @staticmethod
    def of(**facts: Any) -> "ServerRecord":
        """Return the record of a server with its digest: the SHA-256 of all facts but the image digests. Empty ones
        are left out, so a new one changes no digest."""
        filled = {name: value for name, value in facts.items() if value not in EMPTY and name != "digest"}
        covered = {name: value for name, value in filled.items() if name != "image_digests"}
        return ServerRecord(**filled, digest=digest(covered))

    def changed(self, **facts: Any) -> "ServerRecord":
        """Return the record of a server that differs in some facts."""
        return ServerRecord.of(**{**vars(self), **facts})

    def brief(self) -> "ServerRecord":
        """Return the digests, and where the server was."""
        return ServerRecord(
            digest=self.digest,
            image_digests=self.image_digests,
            **{name: getattr(self, name) for name in BRIEF},
        )

    @property
    def place(self) -> str:
        """Where the server was: `127.0.0.1:9000 (external, site 'mine', from n1)`."""
        site = f"site '{self.site}'"
        if self.runtime == "external" and self.address:
            return f"{self.address} (external, {site}, from {self.machine})"
        partition = f", partition {self.partition}" if self.partition else ""
        return f"{site} ({self.runtime}, on {self.machine}{partition})"


class Recorded(Protocol):
    """A record with its configuration and server, None where it has none."""

    @property
    def config_hash(self) -> str | None: ...

    @property
    def server_identity(self) -> ServerRecord | None: ...


def same_server(known: ServerRecord | None, asked: ServerRecord | None) -> bool:
    """Return whether a recorded identity equals the requested one. A missing one on either side counts as equal."""
    if known is None or asked is None:
        return True
    there = known.image_digests or {}
    wanted = (asked.image_digests or {}).items()
    changed = any(image and there.get(role) not in (None, image) for role, image in wanted)
    return known.digest == asked.digest and not changed


def belongs(record: Recorded, config_hash: str, server: ServerRecord | None) -> bool:
    """Return whether a record has this configuration and server; an unrecorded one counts as equal."""
    return record.config_hash in (None, config_hash) and same_server(record.server_identity, server)


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the differences between two trees of settings, one line each: `recipe.command: --a=1 -> --a=2`."""
    return list(_differences(_flat(old), _flat(new)))


def _flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        elif name != "digest" and value not in EMPTY:
            flat[f"{prefix}{name}"] = value
    return flat


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys((*old, *new)):
        before, after = old.get(name), new.get(name)
        if before == after or (name.startswith("image_digests.") and None in (before, after)):
            continue
        if isinstance(before, Sequence) and isinstance(after, Sequence) and not isinstance(before, str):
            before, after = _changed_words(before, after)
        yield f"{name}: {_shown(before)} -> {_shown(after)}"


def _changed_words(old: Sequence[Any], new: Sequence[Any]) -> tuple[str, str]:
    """Return the words of each list that the other lacks at that place."""
    before, after = [str(word) for word in old], [str(word) for word in new]
    steps = [
        step for step in SequenceMatcher(None, before, after, autojunk=False).get_opcodes() if step[0] != "equal"
    ]
    removed = [word for _, start, end, _, _ in steps for word in before[start:end]]
    added = [word for _, _, _, start, end in steps for word in after[start:end]]
    return " ".join(removed[:MOST_WORDS]), " ".join(added[:MOST_WORDS])


def _shown(value: Any) -> str:
    if value in EMPTY:
        return "nothing"
    text = " ".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
