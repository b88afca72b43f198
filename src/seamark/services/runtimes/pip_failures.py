"""What pip prints when it fails, as a cause with its package and a remedy. Runs nothing."""

import re
from dataclasses import dataclass

UNREACHABLE = re.compile(
    r"Connection refused|Failed to establish a new connection|Temporary failure in name resolution"
    r"|Name or service not known|No route to host|Network is unreachable|ConnectTimeout|Read timed out"
    r"|ProxyError|SSLError|Connection reset|Max retries exceeded|502 Bad|503 S|504 G"
)
MISMATCH = re.compile(
    r"^\s+(?P<package>\S+)[^\n]*:\n\s+Expected sha256 (?P<expected>\w+)(?:[^\n]*\n(?:\s+Expected[^\n]*\n)*)"
    r"\s+Got\s+(?P<got>\w+)",
    re.MULTILINE,
)
MISSING = re.compile(
    r"Could not find a version that satisfies the requirement (?P<package>\S+)(?: \(from [^)]*\))?"
    r" \(from versions: (?P<versions>[^)]*)\)"
)
UNNAMED = re.compile(r"In --require-hashes mode.*?\n\s+(?P<package>[^\s(]+)", re.DOTALL)
REQUESTED = re.compile(r"/simple/(?P<package>[^/\s']+)/")
FULL = re.compile(r"No space left on device|Disk quota exceeded")


@dataclass(frozen=True, kw_only=True)
class PipFailure:
    """Why pip failed: the package, None where it is none's fault; the cause; what helps."""

    package: str | None
    cause: str
    remedy: str

    def __str__(self) -> str:
        what = f"package '{self.package}': " if self.package else ""
        return f"{what}{self.cause}. {self.remedy}"


def pip_failure(text: str, lock: str) -> PipFailure | None:
    """Return what pip's output says of its failure to install the lock file `lock`; None for what is not known."""
    if FULL.search(text):
        return PipFailure(
            package=None,
            cause="there is no space left",
            remedy="Free some, or set paths.environments of the site to another disk.",
        )
    if found := MISMATCH.search(text):
        return PipFailure(
            package=found["package"],
            cause=f"its file is not the one that the lock names (sha256 {found['expected'][:12]}... expected,"
            f" {found['got'][:12]}... came)",
            remedy=f"Either {lock} was changed (restore it, or make it again from its .in file), or the index gives"
            " another file (see PIP_INDEX_URL and any mirror between). Nothing of it was installed.",
        )
    if found := UNNAMED.search(text):
        return PipFailure(
            package=found["package"],
            cause="another package needs it, and the lock does not name it with a hash",
            remedy=f"Make {lock} again from its .in file, with all that it needs.",
        )
    found = MISSING.search(text)
    unreachable = UNREACHABLE.search(text) is not None
    if unreachable or (found and found["versions"] == "none"):
        named = found or REQUESTED.search(text)
        why = "the package index cannot be reached" if unreachable else "the index has it not, or cannot be reached"
        return PipFailure(
            package=named["package"] if named else None,
            cause=f"it cannot be downloaded, since {why}",
            remedy=_by_hand(lock),
        )
    if found:
        there = ", ".join(found["versions"].split(", ")[-5:])
        return PipFailure(
            package=found["package"],
            cause=f"the index has no such version for this Python and machine (it has: {there})",
            remedy=f"Is PIP_INDEX_URL another index, or is {lock} made for another version of Python?",
        )
    return None


def _by_hand(lock: str) -> str:
    return (
        "Is the network up, and does pip need a proxy (https_proxy) or an index of its own (PIP_INDEX_URL)? Without a"
        f" network: `pip download --require-hashes -r {lock} -d wheels` where there is one, copy the folder here, and"
        " set PIP_NO_INDEX=1 PIP_FIND_LINKS=wheels."
    )
