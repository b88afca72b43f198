"""Facts about this node as JSON.

`python -m seamark.telemetry.provenance.node [--moment] [--folded] [ROLE=PATH ...]` prints them.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from seamark.telemetry.provenance.machine import described

FOLD = 500
"""srun mixes what its tasks write in pieces of 1,024 bytes."""


def main(argv: Sequence[str]) -> int:
    """Print this node as JSON: one line, or `--folded` over as many as srun can pass on without tearing one."""
    parser = argparse.ArgumentParser(prog="python -m seamark.telemetry.provenance.node", description=__doc__)
    parser.add_argument("--moment", action="store_true", help="only what changes while trials run")
    parser.add_argument("paths", nargs="*", metavar="ROLE=PATH", help="a path that a trial uses, and what for")
    parser.add_argument("--folded", action="store_true", help=f"in lines of {FOLD} characters, to be joined again")
    asked = parser.parse_args(argv)
    paths = {role: Path(path) for role, _, path in (each.partition("=") for each in asked.paths)}
    said = json.dumps(described(paths, whole=not asked.moment))
    width = FOLD if asked.folded else len(said)
    print("\n".join(said[at : at + width] for at in range(0, len(said), width)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
