"""Decoder of a workload with parties: several services under load at the same time, alone and together."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, product

from seamark.config.decode import WRONG, decode, decode_field, is_mapping
from seamark.config.levels import levels, settings_of
from seamark.config.yaml_source import Item, Mistakes
from seamark.dispatch.job import gpus_of_party
from seamark.dispatch.placement import placement_of
from seamark.errors import did_you_mean
from seamark.model.harness import HARNESS, SEAMARK
from seamark.model.load_profile import AUTO
from seamark.model.parties import (
    BURNER,
    GPU_SHARING,
    KEEP_BUSY,
    PARTIES,
    PLACEMENT,
    SETS,
    GpuSharing,
    Mps,
    names_in,
    servers_named,
    set_of,
)
from seamark.model.scenario import Levels, Party, Resources, Workload
from seamark.model.service import Service, Setting, Value
from seamark.patterns.table import load_settings_of
from seamark.platform.ports import LOCAL_HOSTS

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
OF_ALL = (SETS.name, PLACEMENT.name, GPU_SHARING.name, KEEP_BUSY.name)
KEYS = ("name", "parties", "fresh_server", *OF_ALL)
BESIDE = "It stands beside 'parties', for all of them."
NO_MATRIX = "With parties all levels are combined. Write lists of levels, or several workloads."
NO_SEARCH = "A search has one load at a time. Write the rates as levels of the party."
NOT_OF_A_PARTY = {
    "name": "The key above it is the party's name. Remove this line.",
    "include": NO_MATRIX,
    "exclude": NO_MATRIX,
    "where": NO_MATRIX,
    "search": NO_SEARCH,
    "parties": "A party has none of its own. Write all of them in one list.",
    **dict.fromkeys(("fresh_server", *OF_ALL), BESIDE),
}
"""Keys that a party cannot have, each with the remedy."""
OF_A_SERVER = ("gpus", "container", "external")
"""Keys of a party that say where its server is and what it has."""
NOT_OF_THE_WHOLE = {
    **dict.fromkeys(("include", "exclude", "where"), NO_MATRIX),
    "search": NO_SEARCH,
    "slos": "Objectives are those of one party: write them there.",
    "component": "Each party has that of its service. Remove this line.",
    "gpus": "Write it in the party that needs them, and their sum as 'resources.gpus' at the top.",
    **dict.fromkeys(("container", "external"), "Each party has its own server: write it there."),
}
WORDS = ("alone", "pairs", "all", "burners")
"""Words for sets: of each party, of two, of all, and of a party beside a burner."""
EXAMPLE = "{search: {service: faiss, rate_rps: 50}, ingest: {service: 'null', concurrency: 4}}"
ReadWorkload = Callable[[Item], Workload | None]


def parties_of(
    item: Item, services: Mapping[str, Service], resources: Resources, mistakes: Mistakes, read: ReadWorkload
) -> Workload | None:
    """Return a workload with parties, or None after noting every mistake in it. `read` reads one party as a
    workload."""
    before = mistakes.count
    parties = _parties(item, services, mistakes, read)
    sharing = _gpu_sharing(item, mistakes)
    if sharing or GPU_SHARING.name not in item.value:
        _check_resources(item.value["parties"], parties, services, sharing, resources, mistakes)
    if parties and GPU_SHARING.name in item.value and not any(party.gpus for party in parties):
        mistakes.add(item.value[GPU_SHARING.name], "no party has 'gpus' that could be shared. Remove the line.")
    if mistakes.count != before or not parties:
        return None
    burners = [party.name for party in parties if services[party.workload.service].component == BURNER]
    found: dict[str, Levels] = {SETS.name: _sets(item, [party.name for party in parties], burners, mistakes)}
    if sharing:
        found[GPU_SHARING.name] = sharing
    for setting in (PLACEMENT, KEEP_BUSY):
        if setting.name in item.value:
            found[setting.name] = levels(item.value[setting.name], setting, mistakes) or ()
    _check_placements(item.value.get(PLACEMENT.name), mistakes)
    for party in parties if True in found.get(KEEP_BUSY.name, ()) else ():
        if services[party.workload.service].load == "program":
            text = f"the party '{party.name}' is a program, which runs once and does not begin anew. Remove the line."
            mistakes.add(item.value[KEEP_BUSY.name], text)
    name = decode(item.value["name"], str, mistakes) if "name" in item.value else PARTIES.name
    leaves: list[Setting] = []
    for party in parties:
        own = settings_of(services[party.workload.service], party.workload)
        leaves += [replace(setting, name=f"{party.name}.{setting.name}") for setting in own]
        found |= {f"{party.name}.{key}": values for key, values in party.workload.levels.items()}
    if mistakes.count != before:
        return None
    return Workload(
        name=name,
        component=PARTIES.component,
        service=PARTIES.name,
        levels=found,
        leaves=tuple(leaves),
        contents={path: sha for party in parties for path, sha in party.workload.contents.items()},
        parties=parties,
        path=item.path,
        fresh_server=fresh_server(item, mistakes),
    )


def fresh_server(item: Item, mistakes: Mistakes) -> bool:
    """Return whether each treatment of a workload has a server of its own."""
    entry = item.value.get("fresh_server")
    return entry is not None and decode_field(entry, Workload, "fresh_server", mistakes) is True


def _parties(
    item: Item, services: Mapping[str, Service], mistakes: Mistakes, read: ReadWorkload
) -> tuple[Party, ...]:
    whole = item.value["parties"]
    if not isinstance(whole.value, dict) or len(whole.value) < 2:
        text = f"expected a mapping of two parties or more from their names, such as {EXAMPLE}."
        mistakes.add(whole, f"{text} For one service write 'service' in the workload.")
        return ()
    shared = {key: entry for key, entry in item.items() if key not in KEYS}
    used: set[str] = set()
    found = []
    for name, entry in whole.items():
        if not NAME.fullmatch(name):
            text = f"'{name}' is no name of a party: use letters, digits and '_', at most 32, a letter first."
            mistakes.add(entry, text)
        if party := _party(name, entry, shared, used, services, mistakes, read):
            found.append(party)
    if len(found) == len(whole.value):
        loads = [services[party.workload.service] for party in found]
        known = dict.fromkeys(setting.name for service in loads for setting in load_settings_of(service))
        for key in shared.keys() - used:
            mistakes.unknown_key(shared[key], (*KEYS, *known), _hint(key, known))
    served = [party.name for party in found if services[party.workload.service].server is not None]
    for party in found:
        for key, values in party.workload.levels.items():
            for name in sorted(set().union(*(servers_named({key: value}) for value in values)) - {*served}):
                text = f"'{name}' is no party with a server: {', '.join(served) or 'there is none'}."
                at = whole.value[party.name].at([key])
                mistakes.add(at, f"{text}{did_you_mean(name, served)}", "unknown_name")
    first: dict[str, str] = {}
    for address, name in [(_one_spelling(party.external.address), party.name) for party in found if party.external]:
        if (other := first.setdefault(address, name)) != name:
            text = f"this is the server of the party '{other}' as well, which would never be alone. Name another one."
            mistakes.add(whole.value[name].at(["external", "address"]), text, "written_twice")
    return tuple(found)


def _one_spelling(address: str) -> str:
    """Return the address of a server, the same for every name of this machine's loopback."""
    host, _, port = address.rpartition(":")
    return f"{LOCAL_HOSTS[0]}:{port}" if host.strip("[]") in LOCAL_HOSTS else address.lower()


def _party(
    name: str,
    item: Item,
    shared: Mapping[str, Item],
    used: set[str],
    services: Mapping[str, Service],
    mistakes: Mistakes,
    read: ReadWorkload,
) -> Party | None:
    """Return one party; settings of the load that stand beside `parties` are those of each that has none of its
    own."""
    if not is_mapping(item, mistakes):
        return None
    parts = dict(item.value)
    for key, remedy in NOT_OF_A_PARTY.items():
        if key in parts:
            mistakes.unknown_key(parts.pop(key), (), f" A party has none. {remedy}")
    of_server = {key: decode_field(parts.pop(key), Party, key, mistakes) for key in OF_A_SERVER if key in parts}
    of_server = {key: value for key, value in of_server.items() if value is not WRONG}
    written = parts.get("service")
    service = services.get(str(written.value)) if written is not None else None
    if service is not None:
        known = [setting.name for setting in load_settings_of(service)]
        used |= shared.keys() & known
        parts = {key: part for key, part in shared.items() if key in known} | parts
    workload = read(replace(item, value=parts))
    if workload is None or service is None:
        return None
    if service.virtual_clock:
        text = f"{service.name} is a simulation, which shares no machine with others. Remove this party."
        mistakes.add(item, text)
    if AUTO in workload.levels.get("warmup_s", ()):
        text = "'auto' is not possible: parties have one measured window. Write their warm-up in seconds."
        mistakes.add(parts.get("warmup_s", item), text)  # or it stands in the scenario's defaults
    if {*workload.every_level(HARNESS)} - {None, SEAMARK}:
        text = "a party has Seamark's own load: other tools load one service alone. Remove the line."
        mistakes.add(parts.get(HARNESS, item), text)
    party = Party(name=name, workload=workload, **of_server)
    _check_server(party, service, item, mistakes)
    return party


def _check_server(party: Party, service: Service, item: Item, mistakes: Mistakes) -> None:
    """Note keys of a server that the server of a party cannot have."""
    if service.server is None:
        for key in [key for key in ("container", "external") if key in item.value]:
            mistakes.add(item.value[key], f"{service.name} runs inside the load, without a server. Remove the line.")
    elif party.external is not None:
        for key in [key for key in ("container", "gpus") if key in item.value]:
            text = f"the server at {party.external.address} runs already, with what it has. Remove the line."
            mistakes.add(item.value[key], text, "conflict")
        known = service.server.ports
        for name in [name for name in party.external.ports if name not in known]:
            text = f"no such port of {service.name}. Ports: {', '.join(known)}.{did_you_mean(name, known)}"
            mistakes.add(item.at(["external", "ports", name]), text, "unknown_name")


def _hint(key: str, known: Iterable[str]) -> str:
    if key == "service":
        return f" With 'parties' each has a service of its own: {EXAMPLE}."
    if key in NOT_OF_THE_WHOLE:
        return f" {NOT_OF_THE_WHOLE[key]}"
    guess = did_you_mean(key, [*KEYS, *known])
    return guess or " Settings of a service stand in its party; here stand those of the load that all parties share."


def _check_resources(
    item: Item,
    parties: Sequence[Party],
    services: Mapping[str, Service],
    sharing: Sequence[Value],
    resources: Resources,
    mistakes: Mistakes,
) -> None:
    """Note parties that need more GPUs than a node has, by the level of `gpu_sharing` that needs most."""
    wanted, there, nodes = 0, min(resources.gpus), 1
    for count, level in product([count for count in resources.nodes if count > 0], sharing or (None,)):
        way = GpuSharing.of(level)
        asked = [gpus_of_party(party.gpus, count, services[party.workload.service]) for party in parties]
        needed = max(asked, default=0) if way and way.in_common else sum(asked)
        if way and way.way == "mig":
            needed = min(1, needed)  # how many slices a GPU has is known on its machine
        if needed > -(-there // count) and needed > wanted:
            wanted, nodes = needed, count
    if any(str(level).startswith("mig:") for level in sharing):
        for party in [party for party in parties if party.gpus > 1]:
            text = f"a process sees one MIG slice, and would be given {party.gpus}. Write 1."
            mistakes.add(item.value[party.name].at(["gpus"]), text, "conflict")
    if wanted:
        where = f" on each of {nodes} nodes" if nodes > 1 else ""
        text = f"the parties need {wanted} GPUs{where}, and 'resources.gpus' is {there}. Raise it, or lower theirs."
        mistakes.add(item, text)


def _gpu_sharing(item: Item, mistakes: Mistakes) -> tuple[Value, ...]:
    """Return the levels of `gpu_sharing` as text, `mps:50` for `{mps: {threads: 50}}`; () for none, or a mistake."""
    entry = item.value.get(GPU_SHARING.name)
    if entry is None:
        return ()
    before, listed = mistakes.count, isinstance(entry.value, list)
    written = [_as_text(level, mistakes) for level in (entry.value if listed else [entry])]
    if mistakes.count != before:
        return ()
    return levels(replace(entry, value=written if listed else written[0].value), GPU_SHARING, mistakes) or ()


def _as_text(level: Item, mistakes: Mistakes) -> Item:
    """Return a level of `gpu_sharing` with its text in place of a mapping, after noting what is wrong in it."""
    value = level.value
    if isinstance(value, dict) and list(value) == ["mps"]:
        mps = decode(value["mps"], Mps, mistakes)
        return level if mps is WRONG else replace(level, value=f"mps:{mps.threads}")
    if isinstance(value, dict) and list(value) == ["mig"]:
        profile = value["mig"]
        value = f"mig:{profile.value if isinstance(profile.value, str) else profile.shown}"
    try:
        GpuSharing.of(None if value is None else value if isinstance(value, str) else level.shown)
    except ValueError as error:
        guess = did_you_mean(value, ("exclusive", "time_sliced")) if isinstance(value, str) else ""
        example = "Write exclusive, time_sliced, {mps: {threads: 50}} or {mig: 3g.20gb}"
        mistakes.add(level, f"{error}. {example}.{guess}", "not_a_choice")
    return replace(level, value=value)


def _meant(word: str, names: Sequence[str], burners: Sequence[str]) -> list[str]:
    """Return the sets that a word of WORDS stands for."""
    others = [name for name in names if name not in burners] or names
    chosen: Iterable[Sequence[str]] = combinations(others, 2)
    if word == "alone":
        chosen = combinations(names, 1)
    elif word == "all":
        chosen = [others]
    elif word == "burners":
        chosen = product(others, burners) if others is not names else ()
    return [set_of([name for name in names if name in some]) for some in chosen]


def _sets(item: Item, names: list[str], burners: list[str], mistakes: Mistakes) -> tuple[Value, ...]:
    """Return the levels of `sets`; by default each party alone, beside each burner, and then all together."""
    if SETS.name not in item.value:
        return tuple(
            dict.fromkeys(level for word in ("alone", "burners", "all") for level in _meant(word, names, burners))
        )
    entry = item.value[SETS.name]
    groups = entry.value if isinstance(entry.value, list) else [entry] if entry.value in WORDS else []
    if not groups:
        text = f"expected a list of sets, such as [alone, all] or [[{names[0]}], [{', '.join(names)}]], but it is"
        mistakes.add(entry, f"{text} {entry.shown}.")
        return ()
    found: dict[str, int] = {}
    before = mistakes.count
    for group in groups:
        if isinstance(group.value, str) and group.value in WORDS and group.value not in names:
            meant = _meant(group.value, names, burners)
            if not meant:
                which = (
                    "a burner and another party" if group.value == "burners" else "two parties that are no burners"
                )
                mistakes.add(group, f"'{group.value}' names no set here: it needs {which}.")
            found |= {level: found.get(level, group.line) for level in meant}
            continue
        members = group.value if isinstance(group.value, list) else [group]
        asked = [str(member.value) for member in members]
        if not asked:
            mistakes.add(group, f"this set names no party. Known: {', '.join(names)}.")
        for member in members:
            if str(member.value) not in names:
                text = (
                    f"{member.shown} is no party. Known: {', '.join(names)}.{did_you_mean(str(member.value), names)}"
                )
                mistakes.add(member, text)
        if twice := [first for first, second in pairwise(sorted(asked)) if first == second]:
            mistakes.add(group, f"the party '{twice[0]}' stands twice in this set. Remove one.")
        level = set_of([name for name in names if name in asked])
        if level in found:
            text = f"this set has the same parties as the one in line {found[level]}. Remove one of them."
            mistakes.add(group, text)
        elif level:
            found[level] = group.line
    loaded = {name for level in found for name in names_in(level)}
    if (idle := [name for name in names if name not in loaded]) and mistakes.count == before:
        mistakes.add(entry, f"the party '{idle[0]}' is in no set. Add it to one, or remove the party.")
    return tuple(found)


def _check_placements(item: Item | None, mistakes: Mistakes) -> None:
    """Note each placement that is neither a policy of Seamark nor a function that can be imported."""
    if item is None:
        return
    for placement in item.value if isinstance(item.value, list) else [item]:
        if isinstance(placement.value, str) and placement.value:
            try:
                placement_of(placement.value)
            except ValueError as error:
                mistakes.add(placement, f"{str(error).removesuffix('.')}.")
