"""Prints the facts about this node as JSON.

`python -m seamark.telemetry.provenance.node [--moment] [--folded] [ROLE=PATH ...]`
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from seamark.storage.codec import encode
from seamark.telemetry.provenance.machine import described

FOLD = 500
"""srun interleaves the output of its tasks in pieces of 1,024 bytes."""


def main(argv: Sequence[str]) -> int:
    """Print this node as JSON: in one line, or with `--folded` in lines short enough for srun to pass on whole."""
    parser = argparse.ArgumentParser(prog="python -m seamark.telemetry.provenance.node", description=__doc__)
    parser.add_argument("--moment", action="store_true", help="only what changes while trials run")
    parser.add_argument("paths", nargs="*", metavar="ROLE=PATH", help="a path that a trial uses, and what for")
    parser.add_argument("--folded", action="store_true", help=f"in lines of {FOLD} characters, to be joined again")
    arguments = parser.parse_args(argv)
    paths = {role: Path(path) for role, _, path in (assignment.partition("=") for assignment in arguments.paths)}
    document = json.dumps(encode(described(paths, whole=not arguments.moment)))
    width = FOLD if arguments.folded else len(document)
    print("\n".join(document[at : at + width] for at in range(0, len(document), width)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
