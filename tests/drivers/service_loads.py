"""Puts a service under a supervisor and a load on it, as scripts do, for tests of drivers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from service_environment import CACHE, ROOT
from shipped import SERVICES

from seamark.load.coordinator.coordinator import LoadJob, LoadOutcome, run_load
from seamark.load.workers.records import read_segments
from seamark.model.site import Paths, Site
from seamark.model.trial import Deployment
from seamark.services.supervisor.deployment import renew, serve, stop
from seamark.services.supervisor.launch_spec import LaunchSpec
from seamark.storage.codec import encode
from seamark.storage.paths import DeploymentFolder


@contextmanager
def deployed(name: str, root: Path, *, expected: str = "ok", **changes: Any) -> Iterator[dict[str, Any]]:
    """Serve by the recipe `name`, its defaults changed; give the endpoint with `settings` and `renew` added."""
    service = SERVICES[name]
    settings = {setting.name: setting.default for setting in service.settings} | changes
    site = Site(
        name="here",
        summary="",
        paths=Paths(scratch=str(root / "scratch"), environments=str(CACHE / "envs")),
    )
    deployment = Deployment(id=name, service=name, settings=settings, nodes=1, gpus=0, cpus_per_task=1, mem_gb=1)
    folder = DeploymentFolder(root=root / "results" / "deployments" / name)
    spec = LaunchSpec(deployment=deployment, service=service, site=site, folder=folder, scenario="test", seed=0)
    endpoint = encode(serve(spec, ROOT / "envs"))
    try:
        assert endpoint["status"] == expected, endpoint
        yield {**endpoint, "settings": settings, "service": service, "renew": lambda: renew(folder)}
    finally:
        assert stop(folder)


def loaded(endpoint: Mapping[str, Any], parts: Path, **changes: Any) -> tuple[LoadOutcome, np.ndarray]:
    """Run a closed loop on a deployment, for a second or as long as its requests take; give its outcome and all its
    samples."""
    load = {"pattern": "closed", "concurrency": 2, "warmup_s": 0.0, "timeout_s": 10.0}
    load["duration_s"] = 60.0 if "requests" in changes else 1.0
    service = endpoint["service"]
    job = LoadJob(
        driver=service.driver,
        workers=service.workers,
        settings={**endpoint["settings"], **load, **changes},
        seed=0,
        data=Path(endpoint["data"]),
        host=endpoint["host"],
        ports=endpoint["ports"],
    )
    outcome = run_load(job, Path(endpoint["environment"]) / "bin" / "python", parts, endpoint["renew"])
    return outcome, read_segments(outcome.segments)
