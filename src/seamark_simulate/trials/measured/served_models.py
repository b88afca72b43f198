"""The recipes of the servers of models, checked as persistent servers are, before any of them starts."""

import tempfile
from pathlib import Path

from seamark.dispatch.dispatcher import is_batch
from seamark.dispatch.identity import allocation
from seamark.errors import UserError
from seamark.planning.study import site_of
from seamark.services.images.prepare import require_images
from seamark.services.images.study_images import StudyImages
from seamark.services.persistent.instance import ServerRequest
from seamark.services.persistent.request import ValidatedRequest, new_instance, service_named
from seamark.services.runtimes.environments import prepare_environment
from seamark.storage.paths import expanded
from seamark_simulate.config.model_servers import ModelServer, ModelServerFile

OPENAI = "seamark.drivers.openai:"
LONGEST_S = 7 * 24 * 3600.0


def served_models(root: Path, file: ModelServerFile, path: Path) -> dict[str, ValidatedRequest]:
    """Return the checked servers of a file by model. Raises UserError with the mistakes of all of them; starts and
    keeps nothing."""
    site = site_of(root, file.site)
    if not site.starts_servers:
        raise UserError(f"{path}: site: the site '{file.site}' starts no servers (runtime: {site.runtime}).")
    if is_batch(site) and allocation() is None:
        raise UserError(
            f"{path}: site: servers are started on this machine, and '{file.site}' starts them in batch jobs. Measure"
            " within a batch job, or choose another site."
        )
    served: dict[str, ValidatedRequest] = {}
    mistakes: list[str] = []
    with tempfile.TemporaryDirectory(prefix="seamark-measure-") as folder:
        for name, server in file.models.items():
            try:
                served[name] = _validated(root, Path(folder), server, file.site)
            except UserError as mistake:
                lines = (line.removeprefix("bench servers start ") for line in mistake.lines)
                mistakes += [f"{server.where}: {line}" for line in lines]
    if mistakes:
        raise UserError(*mistakes)
    return served


def _validated(root: Path, folder: Path, server: ModelServer, site: str) -> ValidatedRequest:
    service = service_named(root, server.service)
    if not service.driver.startswith(OPENAI):
        raise UserError(f"the service '{service.name}' has no OpenAI API, so no node can call it. Name another one.")
    request = ServerRequest(service=service.name, site=site, settings=dict(server.settings), time_s=LONGEST_S)
    _, wanted = new_instance(root, folder, request, None)
    if wanted.study.site.in_images:
        require_images(wanted.study)
    return wanted


def make_environment(wanted: ValidatedRequest) -> None:
    """Make the environment of a server, if it has one that is missing. Raises UserError and SiteError."""
    study = wanted.study
    lock = StudyImages(study=study).client_lock(wanted.deployment)
    if lock is not None:
        prepare_environment(lock, study.locks, expanded(study.site.paths.environments))
