"""DeploymentContext: parts, files and server of a deployment, for each phase of its life."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import FunctionType

from seamark.config.secrets import secrets_of
from seamark.datasets.prepare import prepared_settings
from seamark.load.coordinator.command_launcher import launcher_of
from seamark.load.coordinator.coordinator import LoadJob
from seamark.load.coordinator.handle import WorkerLauncher
from seamark.model.dotted import resolved
from seamark.model.objectives import latency_limit_s
from seamark.model.results.deployment_record import Endpoint, ServerEnd
from seamark.model.scenario import filled
from seamark.model.server_identity import ServerRecord
from seamark.model.service import Service
from seamark.model.site import Site
from seamark.model.trial import Deployment, Trial
from seamark.planning.study import Study
from seamark.services.images.study_images import StudyImages
from seamark.services.runtimes.containers import INSIDE
from seamark.services.server_identity import server_identity
from seamark.services.supervisor import deployment as servers
from seamark.services.supervisor.control_files import MARK, control_files_of
from seamark.services.supervisor.events import log_tail
from seamark.services.supervisor.mps_daemon import renew_daemon
from seamark.storage.documents import read
from seamark.storage.paths import DeploymentFolder, ScenarioFolder, expanded
from seamark.telemetry.provenance.software import container_around_us

ON_PURPOSE = ("stop", "sigterm", "interrupted", "evicted", "endpoint-removed", "teardown")
"""Reasons for which the supervisor ends a healthy server: its run or batch job was ended, or lost."""

WARM_S = 3600.0
"""Longest time until the workers of a load are ready that first sends the prefixes of a trial."""


@dataclass(frozen=True, kw_only=True)
class DeploymentContext:
    """One deployment of a study: its parts, files and server, and the load jobs of its trials."""

    study: Study
    scenario: str
    deployment: Deployment
    service: Service
    site: Site
    results: ScenarioFolder

    @classmethod
    def of(cls, study: Study, scenario: str, deployment_id: str) -> "DeploymentContext":
        """Find a deployment of a study."""
        deployment = study.deployment(scenario, deployment_id)
        return cls(
            study=study,
            scenario=scenario,
            deployment=deployment,
            service=study.services[deployment.service],
            site=study.site.beside(deployment.external),
            results=study.folder(scenario),
        )

    @property
    def folder(self) -> DeploymentFolder:
        """The deployment's files."""
        return self.results.deployment(self.deployment.id)

    @property
    def members(self) -> "tuple[DeploymentContext, ...]":
        """The members of a deployment with several servers, in their order."""
        return tuple(self.of(self.study, self.scenario, member.id) for member in self.deployment.members)

    @cached_property
    def server(self) -> ServerRecord:
        """The identity of the server that the deployment is planned for."""
        return server_identity(self.study, self.scenario, self.deployment)

    @cached_property
    def secrets(self) -> tuple[str, ...]:
        """The secrets that the server of this deployment, or its load, may repeat."""
        trials = self.study.trials_of(self.scenario, self.deployment.id)
        return secrets_of(*(trial.settings for trial in trials))

    @property
    def lock(self) -> Path | None:
        """The lock file of the service's environment; None for the base environment."""
        name = StudyImages(study=self.study).client_lock(self.deployment)
        return None if name is None else self.study.locks / f"{name}.lock"

    def endpoint(self) -> Endpoint:
        """Return endpoint.json; an empty record without one."""
        return read(self.folder.endpoint, Endpoint) if self.folder.endpoint.exists() else Endpoint()

    def load_job(self, trial: Trial, endpoint: Endpoint) -> LoadJob:
        """Return the load of a trial against the server that `endpoint` describes."""
        preload = None if self.service.preload is None else resolved(self.service.preload, FunctionType)
        return LoadJob(
            driver=self.service.driver,
            workers=self.service.workers,
            settings=prepared_settings(self.service, filled(trial.settings), self.study.data),
            seed=trial.seed,
            data=Path(endpoint.data or ""),
            host=endpoint.host or "",
            ports=endpoint.ports,
            telemetry_interval_s=self.site.telemetry_interval_s,
            ready_timeout_s=WARM_S if trial.settings.get("caches") == "warm" else LoadJob.ready_timeout_s,
            latency_limit_s=latency_limit_s(trial.slos),
            kind=self.service.load,
            virtual_clock=self.service.virtual_clock,
            preload=() if preload is None else tuple(preload(filled(trial.settings))),
            environment={MARK: str(control_files_of(self.folder).root)},
            cores=endpoint.pinning.client if endpoint.pinning and self.site.carrier == "local" else (),
        )

    def launcher(self, parent_pid: int, endpoint: Endpoint) -> WorkerLauncher:
        """Return the launcher of this site's workers. Raises UserError when it cannot run here."""
        site, nodes = self.site, endpoint.load_nodes or ()
        python = None if site.carrier_python is None else expanded(site.carrier_python, self.study.root)
        return launcher_of(site.carrier, site.carrier_address, python, parent_pid, nodes)

    def client_python(self, endpoint: Endpoint) -> Path | None:
        """Return the interpreter of the service's environment, here or in the image of this process; None for the
        base environment."""
        if endpoint.environment is None:
            return None
        return (INSIDE / "env" if container_around_us() else Path(endpoint.environment)) / "bin" / "python"

    def on_tick(self, parent_pid: int) -> Callable[[], str | None]:
        """Return the tick callback of a load: it renews the server's lease and returns why the load must end."""
        return lambda: self.abandoned(parent_pid) or self._end()

    def abandoned(self, parent_pid: int) -> str | None:
        """Renew the leases of all servers, of a member those of all members too, which may be idle for longer than a
        lease; return why the phase must end once its run has ended."""
        alone = self.deployment.whole == self.deployment.id
        whole = self.deployment if alone else self.study.deployment(self.scenario, self.deployment.whole)
        for served in whole.served:
            servers.renew(self.results.deployment(served.id))
        renew_daemon(self.results.deployment(whole.id))
        return None if os.getppid() == parent_pid else "interrupted: the run that asked for this load has gone"

    def withdrawn(self) -> str | None:
        """Return the message for a server that was ended on purpose, so that no trial can be measured; else None."""
        end = servers.why_ended(self.folder)
        why = end.why if end else None
        if why in ON_PURPOSE or not self.folder.endpoint.exists():
            return f"interrupted: the server was ended on purpose ({why or 'endpoint-removed'})"
        return None

    def end_reason(self, wait_s: float = 0.0) -> str | None:
        """Return how the server ended, None while it runs; wait up to `wait_s` for its end to be recorded. Raises
        SystemExit when it was ended on purpose: the trial then has no result."""
        until_s = time.monotonic() + wait_s
        while not (ended := self._end()) and time.monotonic() < until_s:
            time.sleep(0.02)
        if ended and (why := self.withdrawn()):
            raise SystemExit(why)
        return ended

    def log_tail(self) -> list[str]:
        """Return the last lines of the server's log."""
        return log_tail(self.folder.server_log)

    def _end(self) -> str | None:
        if servers.alive(self.folder):
            return None
        end = servers.why_ended(self.folder) or ServerEnd(why="no trace")
        return f"the server ended during the load ({end.why}, code {end.returncode})"
