"""How a job of Snakemake's gets to sbatch: again and again while there is no controller; why it is refused is noted.

For a group of jobs Snakemake does not log what sbatch said, and counts one failed call as a failed job.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

AWAY = ("Unable to contact slurm controller", "Connection refused")
"""What sbatch says when it has reached nobody: only then it is certain that there is no job."""

AWAY_S = 600.0
LONGEST_PAUSE_S = 20.0


def refusals_in(root: Path) -> Path:
    """Return where it is noted, a line for each, why Slurm refused jobs of a study's latest run."""
    return root / ".seamark" / "refused.txt"


def refusals(root: Path) -> list[str]:
    """Return each different reason why Slurm refused jobs of a study's latest run."""
    try:
        return list(dict.fromkeys(refusals_in(root).read_text(encoding="utf-8").splitlines()))
    except OSError:
        return []


def hand_over(root: Path, sbatch: str, options: Sequence[str]) -> int:
    """Call sbatch as Snakemake does, with its answer on our standard output; return its exit code."""
    script = None if any(word.startswith("--wrap") for word in options) else sys.stdin.buffer.read()
    limit_s, pause_s = time.monotonic() + AWAY_S, 1.0
    while True:
        done = subprocess.run([sbatch, *options], input=script, capture_output=True, check=False)
        said = done.stderr.decode(errors="replace")
        if done.returncode == 0 or time.monotonic() > limit_s or not any(sign in said for sign in AWAY):
            break
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    if done.returncode != 0:
        with refusals_in(root).open("a", encoding="utf-8") as notes:
            notes.write(" ".join(said.split()) + "\n")
    sys.stdout.buffer.write(done.stdout)
    sys.stderr.buffer.write(done.stderr)
    return done.returncode
