"""A load on one address, without a scenario: the engine, the files and the metrics of a trial."""

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from seamark.analysis.metrics.document import DerivedMetrics, derive_metrics
from seamark.dispatch.identity import node
from seamark.load.coordinator.coordinator import LoadError, LoadJob
from seamark.load.coordinator.handle import WorkerLauncher
from seamark.load.driver import Target, Wire, make_of
from seamark.load.workers.records import segment_state
from seamark.load.workers.segments import read_samples
from seamark.model.results.calibration import WireCeiling
from seamark.model.results.load_record import ClientRecord, LoadRecord
from seamark.model.sample import Failure
from seamark.model.scenario import Slo
from seamark.model.service import Value
from seamark.model.trial import Trial
from seamark.patterns.table import LOAD_SETTINGS, own_settings
from seamark.storage.paths import TrialFolder
from seamark.storage.redaction import redacted
from seamark.telemetry import provenance
from seamark.trials.address import request_of
from seamark.trials.measure import measure
from seamark.trials.trial_record import counted_load, keep_samples


@dataclass(frozen=True, kw_only=True)
class Address:
    """The requested load: `driver` is `module:Class`, made from `settings`, at `host` and its port `http`."""

    driver: str
    settings: Mapping[str, Value]
    host: str
    port: int
    service: str


def first_request(address: Address, seed: int = 1) -> bytes:
    """Return the bytes of a load's first request. Raises UserError for settings that its driver refuses."""
    target = Target(settings=address.settings, data=Path(), host=address.host, ports={"http": address.port})
    driver = cast(Wire, make_of(address.driver)(target))
    return request_of(driver, seed)


def statuses_of(samples: Path) -> dict[str, Counter[int]]:
    """Return the HTTP statuses of a load's failed requests by the category of their failure, each with its count."""
    found: dict[str, Counter[int]] = {}
    for batch in read_samples(samples):
        failure, status = (batch.column(name).to_numpy() for name in ("failure", "status"))
        pairs, counts = np.unique(np.stack([failure, status])[:, failure != 0], axis=1, return_counts=True)
        for (kind, number), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
            if number:
                found.setdefault(Failure(kind).name.lower(), Counter())[number] += count
    return found


def run_quick_load(
    address: Address,
    load_settings: Mapping[str, Value],
    folder: TrialFolder,
    *,
    slos: tuple[Slo, ...] = (),
    seed: int = 1,
    ceiling: WireCeiling | None = None,
    on_progress: Callable[[Mapping[str, int]], None] = lambda recorded: None,
    launcher: WorkerLauncher | None = None,
    others_before: float | None = None,
    prompt_seed: int | None = None,
) -> DerivedMetrics:
    """Run the load and return what was measured; its samples lie in `folder`.

    `load_settings` has what differs from the defaults of a scenario's load. `on_progress` gets about every 0.1 s how
    many requests each worker has recorded; a worker records what it has once a second or so. Secrets of settings are
    sent, and stand in nothing that is written or returned. `others_before` is what others used of this machine's
    processors just before. `prompt_seed` is that of the prompts, None for `seed`.
    `launcher` starts the workers (None: on this machine).
    Raises LoadError for a load that cannot begin, or whose workers all died.
    """
    own = own_settings([load_settings.get("pattern")])
    settings = {setting.name: setting.default for setting in (*LOAD_SETTINGS, *own)} | dict(load_settings)
    trial = _trial(address, settings, slos, seed)
    job = LoadJob(
        driver=address.driver,
        workers="wire",
        settings={**settings, **address.settings},
        seed=seed,
        bodies_seed=prompt_seed,
        data=folder.root,
        host=address.host,
        ports={"http": address.port},
        judged_in_time=True,
    )
    started_at = provenance.now()

    def tick() -> None:
        on_progress({path.name: _count(path) for path in folder.own_parts.glob("*.samples")})

    measured = measure(job, folder.own_parts, launcher=launcher, on_tick=tick)
    if measured.failure is not None and (measured.failure.category != "no_samples" or not measured.outcome.sent):
        raise LoadError(measured.failure.reason, measured.failure.log_tail)
    record = LoadRecord(
        trial=trial.id,
        config_hash=trial.config_hash,
        status="ok",
        started_at=started_at,
        node=node(),
        warmup_s=trial.load.warmup_s,
        duration_s=trial.load.duration_s,
        client=ClientRecord(workers="wire"),
        others_before=others_before,
    )
    load = keep_samples(folder, measured.outcome, counted_load(record, measured.outcome))
    return derive_metrics(trial, load, folder, scenario="load", client_is_server=False, ceiling=ceiling)


def _trial(address: Address, load_settings: Mapping[str, Value], slos: tuple[Slo, ...], seed: int) -> Trial:
    settings = redacted({**load_settings, **address.settings})
    text = json.dumps([address.driver, address.host, address.port, settings, seed], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Trial(
        id=f"{address.service}--load-{digest[:8]}--r1",
        trial_id=str(uuid.uuid5(uuid.NAMESPACE_URL, digest)),
        deployment=address.service,
        workload="load",
        component="inference" if address.service == "openai" else "http",
        service=address.service,
        settings=settings,
        changed=settings,
        repetition=1,
        block=1,
        position=1,
        seed=seed,
        config_hash=digest[:16],
        group="load",
        slos=slos,
    )


def _count(segment: Path) -> int:
    try:
        return segment_state(segment)[0]
    except (OSError, ValueError):
        return 0
