"""The last part of `make test`: the few tests that failed are run once more while nothing else runs.

Most tests share the cores with another one and with real servers. One that fails beside others and passes alone does
not fail `make test`, but is named at its end: it has a race, or a limit of time that is too near. More than `MOST`
failures are no accident and fail at once, as does a group of tests that ended otherwise than with failed tests.

    python tests/once_more.py here slurm apptainer serial
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MOST = 4
CACHES = Path(".pytest_cache")


def ended(group: str) -> tuple[int | None, list[str]]:
    """The exit code of a group's pytest, None where it never came to an end, and the tests that failed in it."""
    values = CACHES / group / "v"
    code = values / "seamark" / "exit_code"
    failed = values / "cache" / "lastfailed"
    return (
        json.loads(code.read_text()) if code.exists() else None,
        sorted(json.loads(failed.read_text())) if failed.exists() else [],
    )


def once_more(groups: list[str]) -> int:
    """The exit code of `make test`, given how its groups ended; runs what failed in them, if that is little."""
    again: list[str] = []
    for group in groups:
        code, failed = ended(group)
        if code == pytest.ExitCode.OK:
            continue
        if code != pytest.ExitCode.TESTS_FAILED or not failed:
            print(f"the tests of '{group}' ended with {code}, not with failed tests: nothing is tried again")
            return 1
        again += failed
    if len(again) > MOST:
        print(f"{len(again)} tests failed, more than {MOST}: none is tried again")
        return 1
    if not again:
        return 0
    print("once more, alone:", *again, sep="\n  ", flush=True)
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={CACHES / 'once_more'}", *again]
    if (code := subprocess.run(command, check=False).returncode) != 0:
        return code
    print("these failed beside others and passed alone; find the reason:", *again, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(once_more(sys.argv[1:]))
