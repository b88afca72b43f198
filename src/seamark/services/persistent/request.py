"""What a standing server is asked to be: checked like a scenario, and written beside it. Starts nothing."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from seamark.config.read import read_services
from seamark.errors import UserError, did_you_mean
from seamark.model.service import Service, Value
from seamark.model.trial import SCHEMA_VERSION, Deployment
from seamark.planning.study import Study, config_folder
from seamark.planning.study_paths import require_paths
from seamark.services.persistent.instance import STANDING, Instance
from seamark.storage.paths import read_json, write_json, write_text

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}")
WHERE = re.compile(r"^.*scenario\.yaml:\d+:(?: (?:workload|resources)\.)?")


@dataclass(frozen=True, kw_only=True)
class Request:
    """One server that is wanted: for `time_s`, on a node of `site`. None: the site's or Slurm's own default."""

    service: str
    site: str
    settings: Mapping[str, Value]
    time_s: float
    nodes: int = 1
    gpus: int = 0
    cpus_per_task: int = 1
    mem_gb: int = 1
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    container: str | None = None

    @classmethod
    def of(cls, instance: Instance) -> "Request":
        """Return what an instance was asked to be."""
        document = read_json(instance.request)
        return cls(**{name: document[name] for name in cls.__dataclass_fields__})

    def as_scenario(self) -> dict[str, Any]:
        """Return the scenario whose only deployment this server is."""
        asked = {name: getattr(self, name) for name in ("partition", "account", "qos")}
        return {
            "scenario": STANDING,
            "site": self.site,
            **{name: value for name, value in asked.items() if value is not None},
            "resources": {name: getattr(self, name) for name in ("nodes", "gpus", "cpus_per_task", "mem_gb")},
            **({"artifacts": {"container": self.container}} if self.container else {}),
            "workload": {"service": self.service, **self.settings},
        }


@dataclass(frozen=True, kw_only=True)
class ValidatedRequest:
    """A request that was found good: the study it is part of, and the deployment it stands for."""

    request: Request
    study: Study
    service: Service
    deployment: Deployment


def settings_from(pairs: Sequence[str], service: Service) -> dict[str, Value]:
    """Return `name=value` pairs as settings of a service's server. UserError for what is none of them."""
    found: dict[str, Value] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise UserError(f"--set {pair}: give it as NAME=VALUE.")
        setting = service.setting(name)
        if setting is None or setting.role != "deployment":
            known = [each.name for each in service.settings if each.role == "deployment"]
            what = "a setting of a load, not of its server" if setting else "no such setting of its server"
            raise UserError(
                f"bench servers start {service.name}: --set {name}: {what}. Known: {', '.join(known) or 'none'}."
                f"{did_you_mean(name, known)}"
            )
        found[name] = text if setting.type == "str" else yaml.safe_load(text)
    return found


def service_named(root: Path, name: str) -> Service:
    """Return a recipe whose server can be started. UserError when there is none of that name, or it has none."""
    services = read_services(config_folder(root, "services"))
    if name not in services:
        raise UserError(
            f"bench servers start {name}: no such service.{did_you_mean(name, services)}"
            " `bench servers list` lists all."
        )
    if services[name].server is None:
        raise UserError(f"bench servers start {name}: it runs inside the load, so there is no server to start.")
    return services[name]


def new_instance(root: Path, results: Path, request: Request, name: str | None) -> tuple[Instance, ValidatedRequest]:
    """Make the folder of a new standing server and check what is asked. Raises UserError with every mistake."""
    instance = Instance(root=_folder(results / STANDING, request.service, name))
    try:
        write_text(instance.scenario, yaml.safe_dump(request.as_scenario(), sort_keys=False))
        write_json(instance.request, {"schema_version": SCHEMA_VERSION, "id": instance.id, **asdict(request)})
        return instance, wanted(root, instance)
    except UserError as mistake:
        instance.forget()
        lines = [WHERE.sub(f"bench servers start {request.service}: ", line) for line in mistake.mistakes]
        raise type(mistake)(*lines) from None


def wanted(root: Path, instance: Instance) -> ValidatedRequest:
    """Read what an instance is asked to be. Its deployment has the instance's id, so that none shares its data."""
    request = Request.of(instance)
    study = Study.at(root, scenario=str(instance.scenario), site=request.site)
    service = _without_loads(study.services[request.service])
    study = replace(study, services={**study.services, service.name: service})
    if len(study.plan.deployments) != 1:
        raise UserError(f"{instance.id}: a standing server has one value for each setting, not a list of levels.")
    if request.nodes > 1 and not (service.server and service.server.spans):
        raise UserError(
            f"--nodes {request.nodes}: the recipe of {service.name} has processes for one node only, and no load"
            " needs another: it would stand idle. Leave --nodes out."
        )
    deployment = replace(study.plan.deployments[0], id=instance.id)
    require_paths(study)
    study.require_environments()
    study.require_variables()
    return ValidatedRequest(request=request, study=study, service=service, deployment=deployment)


def _without_loads(service: Service) -> Service:
    """Return a recipe whose server has every node of its job, its own process on the first: no load runs there."""
    assert service.server is not None
    return replace(service, server=replace(service.server, load_nodes="shared"))


def _folder(root: Path, service: str, name: str | None) -> Path:
    """Make the folder of an id that nobody has: the name asked for, else the service's with a number."""
    root.mkdir(parents=True, exist_ok=True)
    if name is not None:
        if not NAME.fullmatch(name) or "--" in name:
            raise UserError(f"--name {name}: use letters, digits, '.', '_' and single '-', 41 at most.")
        here = Instance(root=root / name)
        if here.root.exists():
            if here.living():
                raise UserError(f"--name {name}: it runs already. End it with `bench servers stop {name}`.")
            here.put_aside()
        here.root.mkdir()
        return here.root
    number = 1
    while True:
        try:
            (root / f"{service}-{number}").mkdir()
            return root / f"{service}-{number}"
        except FileExistsError:
            number += 1
