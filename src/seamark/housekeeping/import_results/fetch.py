"""Fetches a scenario's results from another folder or machine by rsync, into a folder beside the local ones."""

import hashlib
import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from seamark.errors import SiteError, UserError

RUN_FILES = (".parts", ".keeper", ".job.lock", ".*.tmp", "endpoint.json", "warmup.json", "waiting.json")
"""Files that only matter to a run at the source."""
DERIVED = (
    *("plan.json", "scenario.yaml", "summary.*", "logs"),
    *(f"*--*/{name}" for name in ("metrics.*", "series.csv", "histogram.json", "telemetry.*")),
)
"""Files of a scenario that are derived locally."""
HOME = re.compile(r"^([^/:]+:)~/")
"""Home folder of a remote machine; rsync starts there by itself."""
VANISHED = 24
NOT_THERE = 23


def fetch(source: str, scenario: str, results: Path) -> Path:
    """Copy a scenario from `source`, a folder of results as rsync names it; return the root of the copy.

    `results` is the local results folder, which holds the copy: an interrupted transfer resumes, and files equal to
    local ones are linked, not sent. Calibrations of the nodes are included. Raises SiteError when rsync is missing or
    fails, and UserError for a missing source.
    """
    if shutil.which("rsync") is None:
        raise SiteError(
            "bench collect --from: rsync is not on PATH. Install it here, and on the machine of the results."
        )
    source = HOME.sub(r"\1", source.rstrip("/") or "/")
    _require_another(source, scenario, results)
    copy = results / ".incoming" / hashlib.sha256(f"{source}/{scenario}".encode()).hexdigest()[:12]
    copy.mkdir(parents=True, exist_ok=True)
    rules = [*(f"--exclude={name}" for name in RUN_FILES), *(f"--exclude=/{scenario}/{name}" for name in DERIVED)]
    rules += [f"--include=/{scenario}/***", "--include=/.calibration/***", "--exclude=*"]
    # the names go to the other side as data, since its shell would read them as its own
    words = ["rsync", "--protect-args", "--archive", "--no-owner", "--no-group", "--partial", "--delete", *rules]
    _run([*words, f"--link-dest={results.resolve()}", "--", f"{source}/", f"{copy}/"], source)
    if not (copy / scenario).is_dir():
        forget(copy)
        raise UserError(_not_there(f"{source}/{scenario}"))
    return copy


def forget(copy: Path) -> None:
    """Remove a copy after its files are merged or refused."""
    shutil.rmtree(copy, ignore_errors=True)
    with suppress(OSError):
        copy.parent.rmdir()


def _require_another(source: str, scenario: str, results: Path) -> None:
    """Raise UserError for a missing local folder, or the study's own. A host name has no slash before its colon."""
    if ":" in source.partition("/")[0]:
        return
    if not (Path(source) / scenario).is_dir():
        raise UserError(_not_there(f"{source}/{scenario}"))
    if Path(source).resolve() == results.resolve():
        raise UserError(
            f"{source}: these are the results of this study. `bench collect` without --from sums them up."
        )


def _run(words: list[str], source: str) -> None:
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False, env=os.environ | {"LC_ALL": "C"})
    if done.returncode in (0, VANISHED):
        return
    if done.returncode == NOT_THERE and "change_dir" in done.stderr:
        raise UserError(_not_there(source))
    said = " ".join(done.stderr.split())[-500:]
    remedy = (
        "Install it there as well."
        if "not found" in said
        else "Transferred files are kept; repeat the command to resume."
    )
    raise SiteError(f"{source}: rsync ends with {done.returncode}. {remedy} Its error: {said}")


def _not_there(what: str) -> str:
    return (
        f"{what}: no such folder. --from names a folder of results, such as login.example.org:my-study/results, and"
        " -c the scenario in it."
    )
