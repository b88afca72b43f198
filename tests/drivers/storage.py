"""Storage services for tests: started by the supervisor from their recipes, loaded by the engine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from service_environment import CACHE, ROOT
from shipped import SERVICES

from seamark.load.coordinator.coordinator import LoadJob, LoadOutcome, run_load
from seamark.load.workers.records import read_segments
from seamark.model.sample import Failure
from seamark.model.service import Service
from seamark.model.site import Paths, Site
from seamark.model.trial import Deployment
from seamark.patterns.table import LOAD_SETTINGS
from seamark.services.supervisor.deployment import renew, serve, stop
from seamark.services.supervisor.launch_spec import LaunchSpec
from seamark.storage.codec import encode
from seamark.storage.paths import DeploymentFolder

LOAD = {setting.name: setting.default for setting in LOAD_SETTINGS} | {"duration_s": 0.6, "warmup_s": 0.0}


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A load's outcome and all its samples."""

    outcome: LoadOutcome
    samples: Any

    @property
    def failures(self) -> dict[str, int]:
        """How many samples ended in which category."""
        values, counts = np.unique(self.samples["failure"], return_counts=True)
        return {Failure(value).name: int(count) for value, count in zip(values, counts, strict=True)}

    @property
    def ok(self) -> int:
        return self.failures.get("NONE", 0)


@dataclass(frozen=True, kw_only=True)
class Served:
    """A service that is up."""

    service: Service
    settings: dict[str, Any]
    endpoint: dict[str, Any]
    folder: DeploymentFolder
    parts: Path

    @property
    def data(self) -> Path:
        return Path(self.endpoint["data"])

    @property
    def environment(self) -> Path:
        return Path(self.endpoint["environment"])

    def where(self, **changes: Any) -> dict[str, Any]:
        """What a question in the service's environment needs to make its Target."""
        settings = self.settings | LOAD | changes
        return {"settings": settings, "data": str(self.data), "ports": self.endpoint["ports"]}

    def samples_written(self) -> bool:
        """Say whether the load that runs has written samples."""
        return any(segment.stat().st_size > 4096 for segment in self.parts.glob("*.samples"))

    def load(self, on_tick: Callable[[], str | None] = lambda: None, seed: int = 1, **settings: Any) -> Loaded:
        """Run a load in the service's own environment."""
        job = LoadJob(
            driver=self.service.driver,
            workers=self.service.workers,  # type: ignore[arg-type]
            settings=self.settings | LOAD | settings,
            seed=seed,
            data=self.data,
            ports=self.endpoint["ports"],
        )

        def tick() -> str | None:
            renew(self.folder)
            return on_tick()

        python = self.environment / "bin" / "python" if self.endpoint["environment"] else None
        outcome = run_load(job, python, self.parts, tick)
        return Loaded(outcome=outcome, samples=read_segments(outcome.segments))


@contextmanager
def serving(name: str, root: Path, **changes: Any) -> Iterator[Served]:
    """Start a service under its supervisor with some settings changed; stop it afterwards."""
    service = SERVICES[name]
    settings = {setting.name: setting.default for setting in service.settings} | changes
    roles = {setting.name: setting.role for setting in service.settings}
    deployment = Deployment(
        id=f"{name}-test",
        service=name,
        settings={key: value for key, value in settings.items() if roles[key] == "deployment"},
        nodes=1,
        gpus=0,
        cpus_per_task=1,
        mem_gb=1,
    )
    paths = Paths(results=str(root / "results"), scratch=str(root / "scratch"), environments=str(CACHE / "envs"))
    site = Site(name="test", summary="", paths=paths, lease_s=600.0)
    folder = DeploymentFolder(root=root / "results" / "test" / "deployments" / deployment.id)
    spec = LaunchSpec(deployment=deployment, service=service, site=site, folder=folder, scenario="test", seed=1)
    endpoint = encode(serve(spec, ROOT / "envs"))
    try:
        assert endpoint["status"] == "ok", endpoint
        yield Served(service=service, settings=settings, endpoint=endpoint, folder=folder, parts=root / "parts")
    finally:
        assert stop(folder)
