"""Deployments and trials of workloads with parties: members of the one, a trial of its own for each party. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace

from seamark.config.levels import settings_of
from seamark.errors import Mistake
from seamark.model.parties import GPU_SHARING, OF_THE_WHOLE, PARTIES, PLACEMENT, SETS, names_in
from seamark.model.plugin import known_as
from seamark.model.scenario import Party, Scenario, Workload
from seamark.model.service import Service, Value
from seamark.model.site import Site
from seamark.model.trial import PARTY, WHOLE_LASTS, Deployment, Trial
from seamark.planning.identity import seed_of, trial_uuid
from seamark.planning.treatments import Values


def service_of(workload: Workload, services: Mapping[str, Service]) -> Service:
    """Return the service of a workload: its recipe, or what stands for all of its parties."""
    return PARTIES if workload.parties else services[workload.service]


def served_by(workload: Workload) -> str:
    """Return the services of a workload, for the name of its deployment."""
    return "+".join(dict.fromkeys(load.service for load in workload.loads.values()))


def members_facts(workload: Workload) -> dict[str, object]:
    """Return the part of a deployment's identity that says which service it is, or which ones its members are."""
    members = {
        party.name: {"service": party.workload.service, "gpus": party.gpus, **_named(party)}
        for party in workload.parties
    }
    return {"service": workload.service} | ({"members": members} if members else {})


def _named(party: Party) -> dict[str, object]:
    """Return the image and the external server that a party names, as written; nothing for neither."""
    container = {"container": party.container} if party.container else {}
    return container | ({"external": asdict(party.external)} if party.external else {})


def services_facts(workload: Workload, services: Mapping[str, Service]) -> dict[str, object]:
    """Return the part of a trial's configuration that says what its parties are; nothing without any."""
    facts: dict[str, object] = {}
    for party in workload.parties:
        service = services[party.workload.service]
        known = {"service": service.name, "version": service.version, "driver": known_as(service.driver)}
        facts[party.name] = known | _named(party)
    return {"parties": facts} if facts else {}


def unfit_for_parties(scenario: Scenario, services: Mapping[str, Service], site: Site) -> Iterator[Mistake]:
    """Yield why parties cannot have the servers, images or places that a scenario writes, at this site."""
    lines, nodes = scenario.lines, max(scenario.resources.nodes)
    for workload in scenario.workloads:
        path = workload.path
        places = {key.removeprefix(f"{path}."): where for key, where in lines.items() if key.startswith(f"{path}.")}
        served = [party for party in workload.parties if services[party.workload.service].server is not None]
        outside = [party for party in served if not site.beside(party.external).starts_servers]
        if workload.parties and scenario.artifacts.container is not None:
            text = "each party has a server of its own. Write 'container: FILE.sif' in the party."
            yield Mistake.at(lines["artifacts.container"], text, "conflict")
        for party in outside:
            if party.external is None and services[party.workload.service].setting("address") is None:
                text = f"the key 'external' is missing, and the site '{site.name}' starts no server."
                remedy = "Write 'external: {address: HOST:PORT}', or choose another site."
                yield Mistake.at(places[f"parties.{party.name}"], f"{text} {remedy}", "missing")
            if site.parallel > 1:
                text = f"{site.parallel} lanes would load this server at the same time. Run it with one."
                yield Mistake.at(places[f"parties.{party.name}"], text, "conflict")
        for level in workload.levels.get(PLACEMENT.name, ()):
            if level != PLACEMENT.default and (outside or (workload.parties and nodes > 1)):
                why = f"it divides one node, and there are {nodes}"
                if outside:
                    why = f"the server of '{outside[0].name}' runs already, where nothing can place it"
                text = f"'{level}' cannot be kept: {why}. Write '{PLACEMENT.default}'."
                yield Mistake.at(places[PLACEMENT.name], text, "conflict")
        for level in workload.levels.get(GPU_SHARING.name, ()):
            if level is not None and nodes > 1:
                text = f"'{level}' is proved on one node, and there are {nodes}. Remove the line."
                yield Mistake.at(places[GPU_SHARING.name], text, "conflict")
            elif str(level).startswith("mps:") and site.in_images:
                text = f"'{level}': servers in containers do not see the MPS daemon. Use a site with runtime: venv."
                yield Mistake.at(places[GPU_SHARING.name], text, "conflict")


def with_members(whole: Deployment, workload: Workload, services: Mapping[str, Service]) -> Deployment:
    """Return a deployment with a member for each party, as it is without parties."""
    if not workload.parties:
        return whole
    members = []
    for party in workload.parties:
        service = services[party.workload.service]
        own = _own(party, service, whole.settings)
        members.append(
            replace(
                whole,
                id=f"{whole.id}{PARTY}{party.name}",
                service=service.name,
                settings={name: own[name] for name in sorted(own)},
                gpus=party.gpus,
                container=party.container,
                external=party.external,
            )
        )
    return replace(whole, members=tuple(members), placement=str(whole.settings[PLACEMENT.name]))


def with_parties(
    whole: Trial, scenario: str, workload: Workload, services: Mapping[str, Service], varied: frozenset[str]
) -> Trial:
    """Return a trial with a trial for each party that is under load in it, as it is without parties. `varied` are the
    names of the factors."""
    if not workload.parties:
        return whole
    loaded = names_in(str(whole.settings[SETS.name]))
    parties = tuple(
        _party(whole, scenario, party, services[party.workload.service], loaded, varied)
        for party in workload.parties
        if party.name in loaded
    )
    loads = [party.load for party in parties]
    longest = (0.0, max(load.length_s for load in loads), max(load.timeout_s for load in loads))
    lasts: dict[str, Value] = dict(zip(WHOLE_LASTS, longest, strict=True))
    return replace(
        whole,
        settings={**whole.settings, **lasts},
        parties=parties,
        keep_busy=bool(whole.settings["keep_busy"]),
    )


def _party(
    whole: Trial, scenario: str, party: Party, service: Service, loaded: tuple[str, ...], varied: frozenset[str]
) -> Trial:
    head, _, repetition = whole.id.rpartition("--r")
    name = f"{head}{PARTY}{party.name}--r{repetition}"
    settings = _own(party, service, whole.settings)
    changed = _own(party, service, whole.changed)
    others = [
        setting
        for setting in varied
        if setting in whole.settings and "." in setting and not setting.startswith(f"{party.name}.")
    ]
    beside = {setting.name: whole.settings[setting.name] for setting in OF_THE_WHOLE}
    beside |= {path: whole.settings[path] if path.partition(".")[0] in loaded else None for path in sorted(others)}
    return replace(
        whole,
        id=name,
        trial_id=trial_uuid(scenario, name),
        deployment=f"{whole.deployment}{PARTY}{party.name}",
        component=party.workload.component,
        service=service.name,
        settings=settings,
        changed=changed,
        seed=seed_of(whole.seed, party.name),
        group=f"{whole.group}.{party.name}",
        slos=party.workload.slos,
        beside=beside,
    )


def _own(party: Party, service: Service, values: Values) -> dict[str, Value]:
    """Return the values of one party's settings, under their own names."""
    prefix = f"{party.name}."
    names = [setting.name for setting in settings_of(service, party.workload)]
    return {name: values[prefix + name] for name in names if prefix + name in values}
