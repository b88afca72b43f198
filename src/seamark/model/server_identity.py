"""What a trial is measured on, as a value with a digest, and how two of them differ. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any

from seamark.model.digest import digest

EMPTY: tuple[Any, ...] = (None, "", (), [], {})
BRIEF = ("runtime", "site", "machine", "partition", "address")
LONGEST = 60
MOST_WORDS = 6


@dataclass(frozen=True, kw_only=True)
class ServerIdentity:
    """The server that a deployment's trials are measured on: all that the configuration of a trial does not say.

    `recipe` and `site_settings` are as written, before paths, ports and variables are put in, so that another user's
    folders give the same; secrets are hidden. `machine` is where it runs: the node without a batch system, the
    cluster with one; with runtime `external` that of the load, and `address` says where the server is.
    `image_digests` by role are None where they are not known, and not a part of the digest.
    """

    runtime: str
    site: str
    machine: str
    service: str
    version: str
    driver: str
    partition: str | None = None
    address: str | None = None
    standing: str | None = None
    """Digest of what a standing server was asked to be."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    site_settings: Mapping[str, Any] = field(default_factory=dict)
    lock_sha256: str | None = None
    image_digests: Mapping[str, str | None] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all but the digests of images. What is empty is left out: a new field changes no old digest."""
        return digest({name: value for name, value in self._known().items() if name != "image_digests"})

    def document(self) -> dict[str, Any]:
        """Return everything, for meta.json and endpoint.json."""
        return {"digest": self.digest, **self._known()}

    def brief(self) -> dict[str, Any]:
        """Return what a trial's record keeps: by what it is recognised, and where it was."""
        return brief(self.document())

    def _known(self) -> dict[str, Any]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value not in EMPTY}


def brief(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a recorded identity that a trial's record keeps."""
    return {name: document.get(name) for name in ("digest", *BRIEF, "image_digests")}


def recorded(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the server identity that a record holds, None where none was recorded or it is damaged."""
    found = document.get("server_identity")
    return found if isinstance(found, Mapping) and isinstance(found.get("digest"), str) else None


def same_server(known: Mapping[str, Any] | None, asked: ServerIdentity | None) -> bool:
    """Return whether a recorded identity is the one asked for. One that was not recorded, or not asked for, is."""
    if known is None or asked is None:
        return True
    there = image_digests(known)
    changed = any(wanted and there.get(role) not in (None, wanted) for role, wanted in asked.image_digests.items())
    return known["digest"] == asked.digest and not changed


def belongs(record: Mapping[str, Any], config_hash: str, server: ServerIdentity | None) -> bool:
    """Return whether a record is of this configuration and server, as far as it knows them."""
    return record.get("config_hash") in (None, config_hash) and same_server(recorded(record), server)


def image_digests(known: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the digests of images in a recorded identity, none where there are none that can be read."""
    found = known.get("image_digests")
    return found if isinstance(found, Mapping) else {}


def place(known: Mapping[str, Any]) -> str:
    """Return where a recorded identity was: `127.0.0.1:9000 (external, site 'mine', from n1)`."""
    site, machine = f"site '{known.get('site')}'", str(known.get("machine"))
    if known.get("runtime") == "external" and known.get("address"):
        return f"{known['address']} (external, {site}, from {machine})"
    partition = f", partition {known['partition']}" if known.get("partition") else ""
    return f"{site} ({known.get('runtime')}, on {machine}{partition})"


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return what differs between two documents of identities, a line each: `recipe.command: --a=1 -> --a=2`."""
    return list(_differences(_flat(old), _flat(new)))


def _flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        elif name != "digest" and value not in EMPTY:
            found[f"{prefix}{name}"] = value
    return found


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys((*old, *new)):
        before, after = old.get(name), new.get(name)
        if before == after or (name.startswith("image_digests.") and None in (before, after)):
            continue
        if isinstance(before, Sequence) and isinstance(after, Sequence) and not isinstance(before, str):
            before, after = _changed_words(before, after)
        yield f"{name}: {_shown(before)} -> {_shown(after)}"


def _changed_words(old: Sequence[Any], new: Sequence[Any]) -> tuple[str, str]:
    """Return the words of two lists that the other one does not have at that place."""
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
