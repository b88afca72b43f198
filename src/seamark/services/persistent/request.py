"""Request for a persistent server: settings and resources, validated as a scenario and stored beside the server."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import yaml

from seamark.config.read import Recipes
from seamark.config.yaml_source import value_of
from seamark.errors import UserError, did_you_mean
from seamark.model.service import Service, Value
from seamark.model.trial import RESOURCES, Deployment
from seamark.planning.study import Study, config_folder
from seamark.planning.study_paths import require_paths
from seamark.services.persistent.instance import STANDING, Instance, ServerRequest
from seamark.storage.documents import read, write, write_text

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}")
SCENARIO_LINE = re.compile(r"^.*scenario\.yaml:\d+:(?: (?:workload|resources)\.)?")


@dataclass(frozen=True, kw_only=True)
class ValidatedRequest:
    """A request without mistakes, with its study and its deployment."""

    request: ServerRequest
    study: Study
    service: Service
    deployment: Deployment


def settings_from(pairs: Sequence[str], service: Service) -> dict[str, Value]:
    """Return `name=value` pairs as settings of a service's server. UserError for an unknown setting."""
    values: dict[str, Value] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise UserError(f"--set {pair}: give it as NAME=VALUE.")
        setting = service.setting(name)
        if setting is None or setting.role != "deployment":
            known = [other.name for other in service.settings if other.role == "deployment"]
            what = "a setting of a load, not of its server" if setting else "no such setting of its server"
            raise UserError(
                f"bench servers start {service.name}: --set {name}: {what}. Known: {', '.join(known) or 'none'}."
                f"{did_you_mean(name, known)}"
            )
        try:
            values[name] = text if setting.type == "str" else cast(Value, value_of(text))
        except ValueError as error:
            raise UserError(f"bench servers start {service.name}: --set {name}={text}: {error}") from None
    return values


def service_named(root: Path, name: str) -> Service:
    """Return a recipe with a server. UserError for an unknown name, or a service without a server."""
    services = Recipes(config_folder(root, "services"))
    if name not in services:
        raise UserError(
            f"bench servers start {name}: no such service.{did_you_mean(name, services)}"
            " `bench servers list` lists all."
        )
    if services[name].server is None:
        raise UserError(f"bench servers start {name}: it runs inside the load, so there is no server to start.")
    return services[name]


def new_instance(
    root: Path, results: Path, request: ServerRequest, name: str | None
) -> tuple[Instance, ValidatedRequest]:
    """Create the folder of a new persistent server and validate its request. UserError lists every mistake."""
    instance = Instance(root=new_folder(results / STANDING, request.service, name))
    try:
        write_text(instance.scenario, yaml.safe_dump(_scenario(request), sort_keys=False))
        write(instance.request, replace(request, id=instance.id))
        return instance, validate_request(root, instance)
    except UserError as mistake:
        instance.remove()
        lines = [SCENARIO_LINE.sub(f"bench servers start {request.service}: ", line) for line in mistake.lines]
        raise type(mistake)(*lines) from None


def _scenario(request: ServerRequest) -> Mapping[str, object]:
    """Return the scenario with this server as its only deployment."""
    batch = {name: getattr(request, name) for name in ("partition", "account", "qos")}
    return {
        "scenario": STANDING,
        "site": request.site,
        **{name: value for name, value in batch.items() if value is not None},
        "resources": {name: getattr(request, name) for name in RESOURCES},
        **({"artifacts": {"container": request.container}} if request.container else {}),
        "workload": {"service": request.service, **request.settings},
    }


def validate_request(root: Path, instance: Instance) -> ValidatedRequest:
    """Validate the stored request of an instance. Its deployment gets the instance's id, so its data is its own."""
    request = read(instance.request, ServerRequest)
    study = Study.at(root, scenario=str(instance.scenario), site=request.site)
    service = study.services[request.service]
    assert service.server is not None
    # no load runs there, so that the server uses every node of its job
    service = replace(service, server=replace(service.server, load_nodes="shared"))
    study = replace(study, services={service.name: service})
    if len(study.plan.deployments) != 1:
        raise UserError(f"{instance.id}: a persistent server has one value for each setting, not a list of levels.")
    if request.nodes > 1 and not (service.server and service.server.spans):
        raise UserError(
            f"--nodes {request.nodes}: the recipe of {service.name} has processes for one node only, and no load"
            " needs another: it would be idle. Leave --nodes out."
        )
    deployment = replace(study.plan.deployments[0], id=instance.id)
    require_paths(study)
    study.require_environments()
    study.require_variables()
    return ValidatedRequest(request=request, study=study, service=service, deployment=deployment)


def new_folder(root: Path, service: str, name: str | None = None) -> Path:
    """Create the folder of a new id: the given name, else the name of the service with the next free number."""
    root.mkdir(parents=True, exist_ok=True)
    if name is not None:
        if not NAME.fullmatch(name) or "--" in name:
            raise UserError(f"--name {name}: use letters, digits, '.', '_' and single '-', 41 at most.")
        instance = Instance(root=root / name)
        if instance.root.exists():
            if instance.is_live():
                raise UserError(
                    f"--name {name}: a server of that name runs. End it with `bench servers stop {name}`."
                )
            instance.put_aside()
        instance.root.mkdir()
        return instance.root
    number = 1
    while True:
        try:
            (root / f"{service}-{number}").mkdir()
            return root / f"{service}-{number}"
        except FileExistsError:
            number += 1
