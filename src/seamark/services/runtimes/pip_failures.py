"""Parser of pip's output: a failure as its package, cause and remedy."""

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
    """Why pip failed: the package, None when it is not about one; the cause; the remedy."""

    package: str | None
    cause: str
    remedy: str

    def __str__(self) -> str:
        what = f"package '{self.package}': " if self.package else ""
        return f"{what}{self.cause}. {self.remedy}"


def pip_failure(text: str, lock: str) -> PipFailure | None:
    """Return the failure that pip's output reports for lock file `lock`; None for an unknown one."""
    if FULL.search(text):
        return PipFailure(
            package=None,
            cause="there is no space left on the disk",
            remedy="Free space, or set paths.environments of the site to another disk.",
        )
    if found := MISMATCH.search(text):
        return PipFailure(
            package=found["package"],
            cause=f"its file does not match the lock (sha256 {found['expected'][:12]}... expected,"
            f" {found['got'][:12]}... received)",
            remedy=f"Either {lock} was changed (restore it, or generate it from its .in file), or the index has"
            " another file (see PIP_INDEX_URL and any mirror). The package was not installed.",
        )
    if found := UNNAMED.search(text):
        return PipFailure(
            package=found["package"],
            cause="another package needs it, but the lock has no hash for it",
            remedy=f"Generate {lock} from its .in file, with all dependencies.",
        )
    found = MISSING.search(text)
    unreachable = UNREACHABLE.search(text) is not None
    if unreachable or (found and found["versions"] == "none"):
        named = found or REQUESTED.search(text)
        why = "the package index cannot be reached" if unreachable else "the index lacks it or cannot be reached"
        return PipFailure(
            package=named["package"] if named else None,
            cause=f"it cannot be downloaded: {why}",
            remedy=_download_remedy(lock),
        )
    if found:
        versions = ", ".join(found["versions"].split(", ")[-5:])
        return PipFailure(
            package=found["package"],
            cause=f"the index has no such version for this Python and machine (it has: {versions})",
            remedy=f"Is PIP_INDEX_URL another index, or was {lock} generated for another version of Python?",
        )
    return None


def _download_remedy(lock: str) -> str:
    return (
        "Is the network up, and does pip need a proxy (https_proxy) or an index of its own (PIP_INDEX_URL)? Without a"
        f" network: `pip download --require-hashes --no-deps -r {lock} -d wheels` where there is one, copy the folder"
        " here, and set PIP_NO_INDEX=1 PIP_FIND_LINKS=wheels."
    )
