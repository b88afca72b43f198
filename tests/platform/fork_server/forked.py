"""What the tests let a fork server run."""

import os
import sys
import time
from pathlib import Path


def tell(path: str) -> int:
    """Write down where and as what this process runs."""
    lines = [str(Path.cwd()), os.environ.get("SEAMARK_TRY", ""), str(os.getppid()), str("json.tool" in sys.modules)]
    Path(path).write_text("\n".join(lines))
    print("to standard output")
    print("to standard error", file=sys.stderr)
    return 3


def refuse(why: str) -> None:
    """End as a script does that has something to say."""
    raise SystemExit(why)


def fail() -> None:
    """End by an exception."""
    raise ValueError("what went wrong")


def wait(ready: str, ended: str) -> None:
    """Wait for a signal, and write down that it was an exception to us."""
    try:
        Path(ready).touch()
        time.sleep(60)
    finally:
        Path(ended).touch()


def echo() -> None:
    """Give back a line."""
    sys.stdout.write(sys.stdin.readline().upper())
