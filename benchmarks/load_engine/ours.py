"""Seamark's engine as a program, to be monitored like the other clients: `python ours.py LOAD.json`.

Runs one load through `run_load`, as a trial does, and writes a summary of its records beside the file.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seamark.load.coordinator.coordinator import LoadJob, run_load
from seamark.load.workers.records import read_segments
from seamark.model.sample import CHUNK, MISSING_NS

OPENAI = "seamark.drivers.openai:OpenAi"
CONNECTIONS = 256
"""How many requests of an open loop may be under way."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The settings of a load, its driver, the port of the server, and whether records are to be read afterwards."""

    settings: dict[str, Any]
    port: int
    driver: str = OPENAI
    read: bool = True


def job(asked: Asked, folder: Path) -> LoadJob:
    """Return the load as a trial has it."""
    settings = {"warmup_s": 0.0, "duration_s": 900.0, "timeout_s": 60.0, **asked.settings}
    ports = {"http": asked.port}
    return LoadJob(driver=asked.driver, workers="wire", settings=settings, seed=1, data=folder, ports=ports)


def main(file: Path) -> None:
    """Run the load that a file describes."""
    asked = Asked(**json.loads(file.read_text()))
    outcome = run_load(job(asked, file.parent), None, file.parent / "parts")
    (report,) = outcome.reports
    sizes = {"sample_bytes": outcome.segments, "chunk_bytes": outcome.chunks}
    said = {name: sum(path.stat().st_size for path in paths) for name, paths in sizes.items()}
    said |= {"report": dict(report) if isinstance(report, Mapping) else asdict(report)}
    if asked.read:
        samples = read_segments(outcome.segments)
        chunks = read_segments(outcome.chunks, CHUNK)
        samples = samples[samples["sent_ns"] != MISSING_NS]
        np.save(file.with_name("samples.npy"), samples[np.argsort(samples["sent_ns"], kind="stable")])
        said |= {
            "failed": int((samples["failure"] != 0).sum()),
            "events_per_read": float(chunks["events"].mean()) if len(chunks) else None,
        }
    file.with_name("said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
