"""One deployment as its phases see it: where its files are, whether its server lives, what a load of it needs."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from seamark.load.coordinator.coordinator import LoadJob
from seamark.load.coordinator.launchers.command_launcher import launcher_of
from seamark.load.coordinator.launchers.launcher import WorkerLauncher
from seamark.model.objectives import latency_limit_s
from seamark.model.server_identity import ServerIdentity
from seamark.model.service import Service
from seamark.model.site import Site
from seamark.model.trial import Deployment, Trial
from seamark.planning.study import Study
from seamark.platform.pinning import split_of
from seamark.services.images.images import client_lock
from seamark.services.images.study_images import StudyImages
from seamark.services.runtimes.containers import INSIDE
from seamark.services.study_identities import server_identity
from seamark.services.supervisor import deployment as servers
from seamark.storage.paths import DeploymentFolder, ScenarioFolder, expanded, read_json
from seamark.telemetry.provenance.software import container_around_us

LOG_LINES = 20


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Everything one deployment's phases need: what it is, where it runs, where its files go."""

    study: Study
    scenario: str
    deployment: Deployment
    service: Service
    site: Site
    results: ScenarioFolder

    @classmethod
    def of(cls, study: Study, scenario: str, deployment_id: str) -> "Bench":
        """Find a deployment of a study."""
        deployment = study.deployment(scenario, deployment_id)
        return cls(
            study=study,
            scenario=scenario,
            deployment=deployment,
            service=study.services[deployment.service],
            site=study.site,
            results=study.folder(scenario),
        )

    @property
    def folder(self) -> DeploymentFolder:
        """The deployment's files."""
        return self.results.deployment(self.deployment.id)

    @cached_property
    def server(self) -> ServerIdentity:
        """The server that the deployment's trials are to be measured on."""
        return server_identity(self.study, self.scenario, self.deployment)

    @property
    def lock(self) -> Path | None:
        """The lock file of the service's environment; None for the base environment."""
        image = StudyImages(study=self.study).of_server(self.service, self.study.plan_of(self.scenario).container)
        name = client_lock(self.service, image)
        return None if name is None else self.study.locks / f"{name}.lock"


def job_of(bench: Bench, trial: Trial, endpoint: Mapping[str, Any]) -> LoadJob:
    """Return the load of a trial against the server that `endpoint` describes."""
    return LoadJob(
        driver=bench.service.driver,
        workers=bench.service.workers,
        settings=trial.settings,
        seed=trial.seed,
        data=Path(endpoint["data"]),
        host=endpoint["host"],
        ports=endpoint["ports"],
        telemetry_interval_s=bench.site.telemetry_interval_s,
        latency_limit_s=latency_limit_s(trial.slos),
        cores=split_of(endpoint).client if bench.site.carrier == "local" else (),
    )


def launcher_for(bench: Bench, owner: int) -> WorkerLauncher:
    """Return who carries the shards of this site's loads. Raises UserError for what is missing here."""
    site = bench.site
    python = None if site.carrier_python is None else expanded(site.carrier_python, bench.study.root)
    endpoint = read_json(bench.folder.endpoint) if bench.folder.endpoint.exists() else {}
    return launcher_of(site.carrier, site.carrier_address, python, owner, endpoint.get("load_nodes") or ())


def python_of(endpoint: Mapping[str, Any]) -> Path | None:
    """Return the interpreter of the service's environment, here or in the image around us; None for the base one."""
    if endpoint["environment"] is not None and container_around_us() is not None:
        return INSIDE / "env" / "bin" / "python"
    return None if endpoint["environment"] is None else Path(endpoint["environment"]) / "bin" / "python"


def watch(bench: Bench, parent_pid: int) -> Callable[[], str | None]:
    """Return what a load calls as it goes: it renews the server's lease and says why the load must end."""

    def tick() -> str | None:
        return abandoned(bench, parent_pid) or death(bench)

    return tick


def abandoned(bench: Bench, parent_pid: int) -> str | None:
    """Renew the server's lease; return why its phase must end when the run that asked for it has gone."""
    servers.renew(bench.folder)
    return None if os.getppid() == parent_pid else "interrupted: the run that asked for this load has gone"


def death(bench: Bench) -> str | None:
    """Return how the server ended, or None while it lives."""
    if servers.alive(bench.folder):
        return None
    ended = servers.why_ended(bench.folder) or {}
    return f"the server ended during the load ({ended.get('why', 'no trace')}, code {ended.get('returncode')})"


ON_PURPOSE = ("stop", "sigterm", "interrupted", "evicted", "endpoint-removed", "teardown")
"""Why a supervisor ends a server that is well: its run or its batch job was ended, or given up for lost."""


def taken_away(bench: Bench) -> str | None:
    """Return why nothing can be known of a trial that the server was to serve: it was ended on purpose."""
    why = (servers.why_ended(bench.folder) or {}).get("why")
    if why in ON_PURPOSE or not bench.folder.endpoint.exists():
        return f"interrupted: the server was ended on purpose ({why or 'endpoint-removed'})"
    return None


def server_tail(bench: Bench) -> list[str]:
    """Return the last lines of the server's log."""
    if not bench.folder.server_log.exists():
        return []
    return bench.folder.server_log.read_text(errors="replace").splitlines()[-LOG_LINES:]
