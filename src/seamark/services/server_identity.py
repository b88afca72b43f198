"""Server identities of a study's deployments, computed from recipes, site, images and locks."""

import hashlib
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from seamark.dispatch.dispatcher import is_batch, leaves_this_machine
from seamark.dispatch.identity import cluster
from seamark.model.plugin import known_as
from seamark.model.server_identity import ServerRecord
from seamark.model.service import Container, Part, PartImage, Server, Service
from seamark.model.site import Pinning, Site
from seamark.model.trial import PARTY, Deployment
from seamark.planning.external_servers import PERSISTENT_PREFIX, external_address
from seamark.planning.study import Study
from seamark.services.images.study_images import StudyImages
from seamark.storage.redaction import masked_address, masked_command, masked_variables, redacted_text

SITE_SETTINGS = ("pinning", "placement", "carrier", "network_environment")
"""Settings of a site that change how a server runs beside its load."""


def server_identities(study: Study, scenario: str) -> Mapping[str, ServerRecord]:
    """Return the identity of the server of each deployment of a scenario, by the deployment's id."""
    by_server: dict[tuple[object, ...], ServerRecord] = {}
    identities = {}
    for deployment in study.plan_of(scenario).deployments:
        key = tuple(
            (member.id.partition(PARTY)[2], member.service, member.container, _address(study, member))
            for member in deployment.served
        )
        if key not in by_server:
            by_server[key] = server_identity(study, scenario, deployment)
        identities[deployment.id] = by_server[key]
    return identities


def server_identity(study: Study, scenario: str, deployment: Deployment) -> ServerRecord:
    """Return the identity of a deployment's server, or of its members together; it is the same on every node of a
    cluster."""
    if deployment.members:
        return _of_members(study, scenario, deployment)
    service, site, plan = study.services[deployment.service], study.site, study.plan_of(scenario)
    site = site.beside(deployment.external)
    address = _address(study, deployment)
    images = StudyImages(study=study)
    lock = images.client_lock(deployment)
    return ServerRecord.of(
        runtime=site.runtime,
        site=study.site_name,
        machine=_machine(study),
        partition=plan.partition if is_batch(site) else None,
        address=None if address is None else masked_address(address),
        standing=_request_digest(study.results, address),
        service=service.name,
        version=service.version,
        driver=known_as(service.driver),
        recipe=_recipe(service, site, deployment.container),
        site_settings=_site_settings(site),
        lock_sha256=None if lock is None else _sha256(study.locks / f"{lock}.lock"),
        image_digests=_image_digests(images, deployment),
    )


def _of_members(study: Study, scenario: str, deployment: Deployment) -> ServerRecord:
    members = {
        member.id.partition(PARTY)[2]: server_identity(study, scenario, member) for member in deployment.members
    }
    recipes = {
        name: _without_empty(
            {
                field: getattr(member, field)
                for field in ("service", "version", "driver", "address", "standing", "recipe", "lock_sha256")
            }
        )
        for name, member in members.items()
    }
    first = next(iter(members.values()))
    service = study.services[deployment.service]
    addresses = dict.fromkeys(member.address for member in members.values() if member.address)
    return first.changed(
        runtime=study.site.runtime,
        address=", ".join(addresses) or None,
        standing=None,
        service=service.name,
        version=service.version,
        driver="",
        recipe=recipes,
        lock_sha256=None,
        image_digests={
            f"{name}.{role}": digest
            for name, member in members.items()
            for role, digest in (member.image_digests or {}).items()
        },
    )


def _address(study: Study, deployment: Deployment) -> str | None:
    """Return the address of an external server, of the deployment's settings, else of the site; None for others."""
    site = study.site.beside(deployment.external)
    if site.starts_servers or study.services[deployment.service].server is None:
        return None
    return external_address(site, deployment.settings)


def _machine(study: Study) -> str:
    """Return the machine named by the site, else the batch system's cluster, else this node."""
    site = study.site
    if site.machine is not None:
        return site.machine
    if leaves_this_machine(site):
        return study.site_name
    return cluster() or socket.gethostname()


def _request_digest(results: Path, address: str | None) -> str | None:
    """Return the digest of the request of a persistent server."""
    if address is None or not address.startswith(PERSISTENT_PREFIX):
        return None
    return _sha256(results / address / "scenario.yaml")


def _sha256(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _image_digests(images: StudyImages, deployment: Deployment) -> dict[str, str | None]:
    """Return the digests of images by role. One built on a base file of this machine has None."""
    by_role = {
        "server": images.of_server(deployment),
        **images.of_parts(deployment),
        "client": images.of_client(deployment),
    }
    based_on_file = images.base() is None
    return {
        role: None if image.origin == "definition" and based_on_file else image.digest
        for role, image in by_role.items()
        if image is not None
    }


def _recipe(service: Service, site: Site, container: str | None) -> dict[str, Any]:
    """Return the fields of a recipe that start its server in the site's runtime; none for an external server."""
    server, contained = service.server, site.in_images
    fields_used: dict[str, Any] = {"workers": service.workers}
    if server is not None and site.starts_servers:
        fields_used |= _filled(
            server, ("command", "setup", "environment", "network_environment", "busy_waits", "load_nodes")
        )
        fields_used["parts"] = {part.name: _part(part, contained) for part in server.parts}
    if server is not None and contained:
        fields_used["container"] = {
            "scenario": container,
            "built": service.name in site.images.build,
            **(_container(service.container) if service.container else {}),
        }
    return _without_empty(fields_used)


def _part(part: Part, contained: bool) -> dict[str, Any]:
    own = {"container": _container(part.container)} if contained and part.container else {}
    return _without_empty({**_filled(part, ("command", "nodes", "environment")), **own})


def _container(container: Container | PartImage) -> dict[str, Any]:
    return _filled(container, ("image", "command", "environment", "binds"))


def _filled(thing: Server | Part | Container | PartImage, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the named fields that differ from their defaults, with secrets hidden."""
    defaults = {field.name: field.default for field in fields(thing)}
    values = {name: getattr(thing, name) for name in names}
    return _without_empty({name: _plain(value) for name, value in values.items() if value != defaults[name]})


def _plain(value: Any) -> Any:
    """Return a command, commands, variables or text as recorded, with secrets hidden."""
    if isinstance(value, Mapping):
        return masked_variables(value)
    if isinstance(value, tuple):
        nested = any(isinstance(item, tuple) for item in value)
        return [_named(item) for item in value] if nested else _named(value)
    return redacted_text(value) if isinstance(value, str) else value


def _named(command: Sequence[str]) -> list[str]:
    return masked_command([known_as(word) for word in command])


def _site_settings(site: Site) -> dict[str, Any]:
    defaults = Site(name="", summary="")
    values = {name: getattr(site, name) for name in SITE_SETTINGS}
    kept = {name: value for name, value in values.items() if value != getattr(defaults, name)}
    return {name: asdict(value) if isinstance(value, Pinning) else _plain(value) for name, value in kept.items()}


def _without_empty(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, False, (), [], {})}
