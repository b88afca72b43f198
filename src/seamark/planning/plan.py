"""From a scenario and a site to deployments and trials, in their order of execution. Pure: touches no file."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import prod

from seamark.config.forms.table import directed_figures
from seamark.config.levels import settings_of
from seamark.config.site_limits import SiteRequest, limit_violations
from seamark.errors import Mistake, UserError
from seamark.model.digest import digest
from seamark.model.plugin import known_as
from seamark.model.plurals import counted
from seamark.model.scenario import RESOURCE_SETTINGS, Scenario, Workload, compared_services
from seamark.model.service import Service, Value
from seamark.model.site import Site
from seamark.model.trial import RESOURCES, SCHEMA_VERSION, SERVICE, Deployment, Plan, Trial
from seamark.planning.identity import block_order, part, rank, seed_of, trial_uuid, word, words_of
from seamark.planning.parties import (
    members_facts,
    served_by,
    service_of,
    services_facts,
    unfit_for_parties,
    with_members,
    with_parties,
)
from seamark.planning.starts import TASK, divided_among_replicas, restarts_of, started_in_blocks
from seamark.planning.treatments import Values, factors_of, idle_names, treatments

__all__ = ["Treatment", "plan"]

MOST_TRIALS = 20_000
"""What is planned in about 10 s."""


@dataclass(frozen=True, kw_only=True)
class Treatment:
    """One combination of levels, with its deployment."""

    id: str
    workload: Workload
    service: Service
    workload_id: str
    deployment: Deployment
    settings: Values
    changed: Values
    facts: Mapping[str, object]
    drawn_for: str
    """The id without settings of the role `policy`, and without services that are compared: treatments that differ by
    these alone draw the same numbers."""
    varied: frozenset[str] = frozenset()
    own: Mapping[str, int] = field(default_factory=dict)


def plan(scenario: Scenario, services: Mapping[str, Service], site: Site) -> Plan:
    """Return the plan of a scenario at a site. Raises UserError with every mistake.

    Each repetition is a block: within a deployment it contains every treatment once, in a random order seeded by the
    scenario, balanced for predecessors where `compare` asks for carry-over. Deployments have such an order as well,
    in each block one of its own where each block starts them.
    """
    mistakes: list[str | Mistake] = []
    factors: dict[str, dict[str, tuple[Value, ...]]] = {"deployment": {}, "workload": {}}
    found: dict[str, Treatment] = {}
    count = 0
    for workload in scenario.workloads:
        at = _at(scenario, workload)
        try:
            service = service_of(workload, services)
            combinations = treatments(workload, scenario.resources, service)
        except ValueError as error:
            mistakes.append(f"{at}: {error}.")
            continue
        count += len(combinations) * scenario.repetitions
        if count > MOST_TRIALS:
            text = f"{count} trials are more than {MOST_TRIALS}. Vary fewer settings, or fewer levels."
            raise UserError(*mistakes, f"{at}: {text}")
        if len(names := compared_services(workload, scenario.workloads)) > 1:
            known = factors["deployment"].get(SERVICE, ())
            factors["deployment"][SERVICE] = tuple(dict.fromkeys((*known, *names)))
        _add_factors(factors, combinations, service, workload)
        varied = frozenset(factors_of(combinations))
        alone = [name for name in combinations[0] if name.partition(".")[0] in workload.own]
        own = {name: list(dict.fromkeys(values[name] for values in combinations)) for name in alone}
        for values in combinations:
            treatment = _treatment(scenario, workload, service, values, services, varied)
            treatment = replace(treatment, own={name: own[name].index(values[name]) for name in own})
            other = found.setdefault(treatment.id.casefold(), treatment)
            if other is not treatment:
                mistakes.append(_collision(at, treatment, other))
    mistakes += _alike(scenario, [treatment.deployment for treatment in found.values()])
    served = [member for treatment in found.values() for member in treatment.deployment.served]
    started = [member for member in served if site.beside(member.external).starts_servers]
    mistakes += _too_few_resources(scenario, services, started)
    mistakes += unfit_for_parties(scenario, services, site)
    mistakes += _unfit_for_replicas(scenario, site, found.values())
    mistakes += _never_fresh(scenario, services, site)
    mistakes += _misfits(scenario, site, found.values())
    if mistakes:
        raise UserError(*dict.fromkeys(mistakes))
    by_rank = {
        rank(scenario.metadata.seed, "deployments", treatment.deployment.id): treatment.deployment
        for treatment in found.values()
    }
    deployments = tuple(by_rank[key] for key in sorted(by_rank))
    planned = Plan(
        scenario=scenario.name,
        source=str(scenario.path),
        seed=scenario.metadata.seed,
        repetitions=scenario.repetitions,
        max_retries=scenario.max_retries,
        factors=factors,
        deployments=deployments,
        trials=tuple(_trials(scenario, deployments, found.values(), services)),
        partition=scenario.partition,
        account=scenario.account,
        qos=scenario.qos or ("default" if "default" in site.qos else None),
        gres=scenario.gres,
        ntasks=scenario.ntasks,
        container=scenario.artifacts.container,
        dataset=scenario.artifacts.dataset,
        binds=scenario.binds,
        git_commit=scenario.metadata.git_commit,
        notes=scenario.metadata.notes,
        compare=scenario.compare,
        prediction=scenario.prediction,
        qualities={
            name: quality
            for service in dict.fromkeys(member.service for member in served)
            for name, quality in services[service].qualities.items()
        }
        | directed_figures(scenario.workloads),
    )
    virtual = {treatment.service.name for treatment in found.values() if treatment.service.virtual_clock}
    if restarts_of(scenario, planned, services, virtual) == "each":
        planned = started_in_blocks(planned, virtual)
    return divided_among_replicas(planned, scenario.replicas, services)


def _treatment(
    scenario: Scenario,
    workload: Workload,
    service: Service,
    values: Values,
    services: Mapping[str, Service],
    varied: frozenset[str],
) -> Treatment:
    serves = sorted(setting.name for setting in (*service.settings, *workload.leaves) if setting.role == "deployment")
    idle = idle_names(workload, values)
    inside = [setting.name for setting in settings_of(service, workload) if setting.name not in {*serves, *idle}]
    policies = [setting.name for setting in service.settings if setting.role == "policy"]
    own = sorted((name for name in inside if service.setting(name)), key=lambda name: (name not in policies, name))
    order = own + [name for name in inside if not service.setting(name)]
    defaults = {setting.name: setting.default for setting in settings_of(service, workload)}
    changed = {name: values[name] for name in (*serves, *order) if values[name] != defaults[name]}
    load = {name: changed[name] for name in order if name in changed}
    workload_id = _workload_id(scenario, workload, load)
    deployment = _deployment(scenario, workload, values, serves, changed, workload_id)
    chosen = {setting.name for setting in settings_of(service, workload) if setting.role == "policy"}
    if several := len(compared_services(workload, scenario.workloads)) > 1:
        chosen |= {setting.name for setting in service.settings}
    drawn_for, drawn_on = workload_id, workload.name if several else deployment.id
    if chosen & load.keys():
        drawn_for = _workload_id(scenario, workload, {name: load[name] for name in load if name not in chosen})
        if workload.fresh_server and not several:
            drawn_on = _deployment(scenario, workload, values, serves, changed, drawn_for).id
    settings = {name: values[name] for name in defaults}
    return Treatment(
        id=f"{deployment.id}--{workload_id}",
        drawn_for=f"{drawn_on}--{drawn_for}",
        workload=workload,
        service=service,
        workload_id=workload_id,
        deployment=with_members(deployment, workload, services),
        settings=settings,
        changed=changed,
        facts={
            "schema_version": SCHEMA_VERSION,
            "service": service.name,
            "version": service.version,
            "driver": known_as(service.driver),
            **services_facts(workload, services),
            "settings": {name: value for name, value in settings.items() if value is not None and name not in idle},
            "resources": {name: values[name] for name in RESOURCES},
            **_artifacts(scenario),
            **_searched(workload),
            **_contents(workload, service, values),
            **_fresh(workload),
        },
        varied=varied,
    )


def _workload_id(scenario: Scenario, workload: Workload, load: Values) -> str:
    spoken = {name: value for name, value in load.items() if not workload.search or name != workload.search.setting}
    words = [*words_of(spoken), *([f"search-{workload.search.setting}"] if workload.search else [])]
    return part(words or ["defaults"], {"settings": load} | _searched(workload) | _seed(scenario))


def _contents(workload: Workload, service: Service, values: Values) -> dict[str, str]:
    """The content of a treatment's files is part of its identity, as `trace_sha256`; a path that cannot be read here
    stands for itself."""
    named = [setting.name for setting in settings_of(service, workload) if setting.file and values[setting.name]]
    found = {name: workload.contents.get(str(values[name])) for name in named}
    return {f"{name}_sha256": content for name, content in found.items() if content is not None}


def _searched(workload: Workload) -> dict[str, object]:
    """A search is part of the identity, and so are the objectives that decide its result."""
    if workload.search is None:
        return {}
    slos = sorted(f"{slo.metric} {slo.op} {slo.limit!r}" for slo in workload.slos)
    return {"search": asdict(workload.search), "slos": slos}


def _fresh(workload: Workload, workload_id: str | bool = True) -> dict[str, object]:
    """With `fresh_server` the treatment is part of its deployment's identity: no other one has that server."""
    return {"fresh_server": workload_id} if workload.fresh_server else {}


def _deployment(
    scenario: Scenario, workload: Workload, values: Values, names: list[str], changed: Values, workload_id: str
) -> Deployment:
    ours = {name: changed[name] for name in names if name in changed}
    given = {setting.name: (values[setting.name], setting.default) for setting in RESOURCE_SETTINGS}
    own_resources = {name: value for name, (value, default) in given.items() if value != default}
    identity = {**members_facts(workload), "settings": ours, "resources": own_resources}
    return Deployment(
        id=part(
            [word(served_by(workload)), *words_of(ours), *words_of(own_resources)],
            identity | _seed(scenario) | _artifacts(scenario) | _fresh(workload, workload_id),
        ),
        service=workload.service,
        settings={name: values[name] for name in names},
        nodes=int(values["nodes"] or 0),
        gpus=int(values["gpus"] or 0),
        cpus_per_task=int(values["cpus_per_task"] or 0),
        mem_gb=int(values["mem_gb"] or 0),
        container=scenario.artifacts.container,
    )


def _seed(scenario: Scenario) -> dict[str, int]:
    return {"seed": scenario.metadata.seed} if scenario.metadata.seed else {}


def _artifacts(scenario: Scenario) -> dict[str, str]:
    """The image of a run, as written: `$NAME` is not expanded, so another user's folder gives the same identity. A
    data set is a setting."""
    container = scenario.artifacts.container
    return {} if container is None else {"container": container}


def _trials(
    scenario: Scenario,
    deployments: tuple[Deployment, ...],
    found: Iterable[Treatment],
    services: Mapping[str, Service],
) -> Iterable[Trial]:
    seed = scenario.metadata.seed
    balanced = scenario.compare is not None and scenario.compare.carry_over
    served: dict[str, dict[str, Treatment]] = {deployment.id: {} for deployment in deployments}
    for treatment in found:
        served[treatment.deployment.id][treatment.id] = treatment
    for deployment in deployments:
        position = 0
        for block in range(1, scenario.repetitions + 1):
            inside = served[deployment.id]
            for name in block_order(inside, seed, deployment.id, block, balanced=balanced):
                position += 1
                treatment = inside[name]
                trial = _trial(scenario, treatment, block, position)
                yield with_parties(trial, scenario.name, treatment.workload, services, treatment.varied)


def _trial(scenario: Scenario, treatment: Treatment, repetition: int, position: int) -> Trial:
    name = f"{treatment.id}--r{repetition}"
    seed = seed_of(scenario.metadata.seed, treatment.service.draws_for(treatment.drawn_for), repetition)
    return Trial(
        id=name,
        trial_id=trial_uuid(scenario.name, name),
        deployment=treatment.deployment.id,
        workload=treatment.workload_id,
        component=treatment.workload.component,
        service=treatment.workload.service,
        settings=treatment.settings,
        changed=treatment.changed,
        repetition=repetition,
        block=repetition,
        position=position,
        seed=seed,
        config_hash=digest({**treatment.facts, "repetition": repetition, "seed": seed}),
        group=treatment.workload.name,
        slos=treatment.workload.slos,
        search=treatment.workload.search,
        metrics=scenario.metrics,
        checks=scenario.checks,
        own=treatment.own or None,
    )


def _add_factors(
    factors: dict[str, dict[str, tuple[Value, ...]]], combinations: list[Values], service: Service, workload: Workload
) -> None:
    roles = {setting.name: setting.role for setting in settings_of(service, workload)} | dict.fromkeys(
        RESOURCES, "deployment"
    )
    for name, levels in factors_of(combinations).items():
        of_role = factors.setdefault("deployment" if workload.fresh_server else roles[name], {})
        of_role[name] = tuple(dict.fromkeys((*of_role.get(name, ()), *levels)))


def _misfits(scenario: Scenario, site: Site, treatments: Iterable[Treatment]) -> list[str]:
    resources = {
        (
            treatment.service.nodes_served(treatment.deployment.nodes),
            tuple(getattr(treatment.deployment, name) for name in RESOURCES),
        )
        for treatment in treatments
    }
    found: list[str] = []
    for served, counts in sorted(resources):
        own_resources = SiteRequest(
            partition=scenario.partition,
            account=scenario.account,
            qos=scenario.qos,
            resources={name: (count,) for name, count in zip(RESOURCES, counts, strict=True)},
            gpu_nodes=served,
        )
        found += limit_violations(own_resources, site, scenario.lines)
        found += _uneven_tasks(scenario, site, *counts)
    return found


def _uneven_tasks(scenario: Scenario, site: Site, nodes: int, _: int, cpus_per_task: int, __: int) -> Iterator[str]:
    """Yield why the tasks of a job do not fit its nodes: each node has as many, with `cpus_per_task` CPUs each."""
    at, tasks = scenario.lines.get("ntasks", _at(scenario)), scenario.ntasks or nodes
    has = site.partitions.get(scenario.partition or "")
    if tasks % nodes:
        fitting = -(-tasks // nodes) * nodes
        yield f"{at}: {tasks} tasks are no multiple of {counted(nodes, 'node')}. Write 'ntasks: {fitting}'."
    elif has and nodes < tasks and (cpus := tasks // nodes * cpus_per_task) > has.cpus:
        name = scenario.partition
        yield f"{at}: {cpus} CPUs a node are more than the partition '{name}' has: {has.cpus}. Lower it."


def _unfit_for_replicas(scenario: Scenario, site: Site, treatments: Iterable[Treatment]) -> list[str]:
    """Return why replicas cannot divide the tasks of this scenario: there are none, or no server of its own."""
    if scenario.replicas == 1:
        return []
    at = scenario.lines.get("replicas", _at(scenario))
    if not site.starts_servers:
        return [f"{at}: site '{site.name}' has one external server. Remove the line, or use another site."]
    found = []
    for treatment in treatments:
        if not treatment.settings.get(TASK):
            why = f"workload '{treatment.workload.name}' has no 'task', and replicas divide tasks among servers"
        elif treatment.service.server is None:
            why = f"the service '{treatment.service.name}' starts no server of which there could be replicas"
        else:
            continue
        found.append(f"{at}: {why}. Remove the line.")
    return found


def _never_fresh(scenario: Scenario, services: Mapping[str, Service], site: Site) -> list[str]:
    """Return why a workload cannot have fresh servers: none is started for it."""
    found = []
    for workload in scenario.workloads:
        loads = [(services[party.workload.service], party.external) for party in workload.parties]
        loads = loads or ([(services[workload.service], None)] if workload.service in services else [])
        started = any(
            not service.virtual_clock and site.beside(external).starts_servers for service, external in loads
        )
        if workload.fresh_server and not started:
            at = scenario.lines.get(f"{workload.path}.fresh_server", _at(scenario, workload))
            found.append(f"{at}: 'fresh_server' starts servers, and here none is started. Remove the line.")
    return found


def _too_few_resources(
    scenario: Scenario, services: Mapping[str, Service], deployments: Iterable[Deployment]
) -> list[str]:
    """Return which nodes or GPUs a server lacks."""
    found = []
    for deployment in deployments:
        server = services[deployment.service].server
        for name, noun, has, fewest in (
            ("nodes", "node", deployment.nodes, server.fewest_nodes if server else 0),
            ("gpus", "GPU", deployment.gpus, server.fewest_gpus if server else 0),
        ):
            if has < fewest:
                at = scenario.lines.get(f"resources.{name}", _at(scenario))
                text = f"{at}: the service '{deployment.service}' needs {counted(fewest, noun)} at least, not {has}."
                found.append(f"{text} Write 'resources: {{{name}: {fewest}}}'.")
        found += _more_shards_than_gpus(scenario, services[deployment.service], deployment)
    return list(dict.fromkeys(found))


def _more_shards_than_gpus(scenario: Scenario, service: Service, deployment: Deployment) -> Iterator[str]:
    """Yield why a model is not divided among the GPUs of its server: by tensors, pipeline stages, replicas."""
    declared = service.gpu_memory
    names = (declared.tensor_parallel, declared.pipeline_parallel, declared.data_parallel) if declared else ()
    shards = {name: count for name in names if name and type(count := deployment.settings[name]) is int and count > 1}
    if 0 < deployment.gpus < (needed := prod(shards.values())):
        at = scenario.lines.get("resources.gpus", _at(scenario))
        product = " x ".join(f"{name} {count}" for name, count in shards.items())
        yield (
            f"{at}: {service.name} with {product} needs {needed} GPUs, not {deployment.gpus}. Write 'resources:"
            f" {{gpus: {needed}}}', or lower '{next(iter(shards))}'; `where` leaves combinations out."
        )


def _alike(scenario: Scenario, deployments: list[Deployment]) -> list[str]:
    """Two deployments with one name, which only a hash collision can cause."""
    first: dict[str, Deployment] = {}
    return [
        f"{_at(scenario)}: two deployments get the name {deployment.id}. Change a setting of one, such as its mem_gb."
        for deployment in deployments
        if first.setdefault(deployment.id.casefold(), deployment) != deployment
    ]


def _collision(at: str, treatment: Treatment, other: Treatment) -> str:
    first, second = other.workload.name, treatment.workload.name
    whose = f"'{second}' measures the same as '{first}'" if first != second else f"'{second}' measures it twice"
    return f"{at}: the trial {treatment.id} is planned twice: {whose}. Change a setting of one, or remove it."


def _at(scenario: Scenario, workload: Workload | None = None) -> str:
    """Return where a workload was written, or the scenario."""
    whole = scenario.lines.get("", str(scenario.path))
    return whole if workload is None else scenario.lines.get(workload.path, whole)
