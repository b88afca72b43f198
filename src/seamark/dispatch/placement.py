"""Placement: cores, threads, niceness and GPUs of services under load at the same time on one machine.

Pure functions. A policy gets the parties of one trial in their order and the machine, and returns a place for each
party. `places` calls a policy and checks its answer; supervisor and workers apply it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType

from seamark.errors import SiteError, UserError, did_you_mean
from seamark.model.dotted import is_dotted, resolved
from seamark.model.parties import GpuSharing
from seamark.model.plurals import counted

BACKGROUND = 10
"""Niceness of all parties but the first with `priority`: about a tenth of the CPU time where both want all of it."""
NICEST = 19


@dataclass(frozen=True, kw_only=True)
class PartyMachine:
    """CPUs by number and GPUs by index that all parties together may use.

    Policies divide `cores` in this order, so hardware threads of one physical core should stand side by side.
    `gpus_in_common`: each party gets the first ones, as many as it requests. MIG slices are counted from 0.
    """

    cores: tuple[int, ...]
    gpus: tuple[int, ...] = ()
    gpus_in_common: bool = False


@dataclass(frozen=True, kw_only=True)
class PlacedParty:
    """One service of a trial. `in_client`: it has no server and runs in the processes of its load; `gpus` is how many
    it requests."""

    name: str
    in_client: bool = False
    gpus: int = 0


@dataclass(frozen=True, kw_only=True)
class Place:
    """What one party gets. Cores: () for all. `threads` is the limit of numerical libraries in each of its processes,
    None for no limit; `niceness` is 0 to 19, of server and load; `gpus` are those that it sees, () for none. `share`
    is what the setting gpu_sharing makes of them; a policy leaves it out."""

    server_cores: tuple[int, ...] = ()
    load_cores: tuple[int, ...] = ()
    threads: int | None = None
    niceness: int = 0
    gpus: tuple[int, ...] = ()
    share: GpuSharing | None = None


PlacementPolicy = Callable[[Sequence[PlacedParty], PartyMachine], Mapping[str, Place]]
"""Returns a place for each party, by name. Parties are in the order of the plan."""


def shared(parties: Sequence[PlacedParty], machine: PartyMachine) -> dict[str, Place]:
    """Leave all parties on all cores: the kernel divides them."""
    gpus = _dealt("shared", parties, machine)
    return {party.name: Place(gpus=gpus[party.name]) for party in parties}


def split(parties: Sequence[PlacedParty], machine: PartyMachine) -> dict[str, Place]:
    """Divide the cores evenly among the parties; server and load of a party share its part.

    Where they do not divide evenly, the first parties have one more. Raises SiteError with fewer cores than parties.
    """
    _require_cores("split", len(parties), parties, machine)
    gpus = _dealt("split", parties, machine)
    return {
        party.name: Place(
            server_cores=() if party.in_client else part,
            load_cores=part,
            threads=len(part),
            gpus=gpus[party.name],
        )
        for party, part in zip(parties, _parts(machine.cores, parties, parties), strict=True)
    }


def pinned(parties: Sequence[PlacedParty], machine: PartyMachine) -> dict[str, Place]:
    """Divide the cores as `split` does, and each part between server and load, the server having the odd one.

    A party without a server has its whole part for the load. `threads` is the number of the server's cores. Raises
    SiteError when a server and its load would have to share a core.
    """
    _require_cores("pinned", sum(1 if party.in_client else 2 for party in parties), parties, machine)
    gpus = _dealt("pinned", parties, machine)
    found: dict[str, Place] = {}
    few = len(machine.cores) < 2 * len(parties)  # parts of one core suffice only for parties in the client
    first = sorted(parties, key=lambda party: party.in_client) if few else parties
    for party, part in zip(parties, _parts(machine.cores, parties, first), strict=True):
        half = 0 if party.in_client else (len(part) + 1) // 2
        found[party.name] = Place(
            server_cores=part[:half], load_cores=part[half:], threads=half or len(part), gpus=gpus[party.name]
        )
    return found


def priority(parties: Sequence[PlacedParty], machine: PartyMachine) -> dict[str, Place]:
    """Leave all parties on all cores and give the first one precedence: the others have a niceness of 10."""
    gpus = _dealt("priority", parties, machine)
    return {
        party.name: Place(niceness=BACKGROUND if number else 0, gpus=gpus[party.name])
        for number, party in enumerate(parties)
    }


def _parts(
    cores: Sequence[int], parties: Sequence[PlacedParty], first: Sequence[PlacedParty]
) -> list[tuple[int, ...]]:
    """Return contiguous parts of the cores for the parties, in their order, as even as possible. The cores that are
    left over go to the parties in `first`, one each."""
    whole, rest = divmod(len(cores), len(parties)) if parties else (0, 0)
    favoured = {party.name for party in first[:rest]}
    parts: list[tuple[int, ...]] = []
    begin = 0
    for party in parties:
        end = begin + whole + (party.name in favoured)
        parts.append(tuple(cores[begin:end]))
        begin = end
    return parts


def _require_cores(policy: str, least: int, parties: Sequence[PlacedParty], machine: PartyMachine) -> None:
    if len(machine.cores) < least:
        why = " (two for each with a server)" if policy == "pinned" else ""
        others = "split, shared" if policy == "pinned" and len(machine.cores) >= len(parties) else "shared"
        raise SiteError(
            f"placement {policy} needs at least {counted(least, 'core')} for {counted(len(parties), 'party')}{why};"
            f" this machine has {len(machine.cores)}. Use {others} or priority, or a machine with more cores."
        )


def _dealt(policy: str, parties: Sequence[PlacedParty], machine: PartyMachine) -> dict[str, tuple[int, ...]]:
    """Return the GPUs of each party: as many as it requests, in order, none twice unless parties have them in common.
    Raises SiteError for too few."""
    asked = [party.gpus for party in parties]
    needed = max(asked, default=0) if machine.gpus_in_common else sum(asked)
    if needed > len(machine.gpus):
        each = ", ".join(f"{party.name} {party.gpus}" for party in parties if party.gpus)
        raise SiteError(
            f"placement {policy} needs {counted(needed, 'GPU')} ({each}); this machine has {len(machine.gpus)}."
            " Request fewer, or share GPUs: 'gpu_sharing: time_sliced'."
        )
    if machine.gpus_in_common:
        return {party.name: machine.gpus[: party.gpus] for party in parties}
    free = iter(machine.gpus)
    return {party.name: tuple(next(free) for _ in range(party.gpus)) for party in parties}


PLACEMENTS: Mapping[str, PlacementPolicy] = {
    "shared": shared,
    "split": split,
    "pinned": pinned,
    "priority": priority,
}


def placement_of(name: str) -> PlacementPolicy:
    """Return the policy of that name, or the function at the dotted path `module:function`.

    Raises ValueError with the mistake, the allowed names and the nearest guess.
    """
    if is_dotted(name):
        return resolved(name, FunctionType)
    if name not in PLACEMENTS:
        allowed = ", ".join(PLACEMENTS)
        raise ValueError(
            f"'{name}' is no placement. Allowed: {allowed}, or module:function.{did_you_mean(name, PLACEMENTS)}"
        )
    return PLACEMENTS[name]


def places(policy: PlacementPolicy, parties: Sequence[PlacedParty], machine: PartyMachine) -> dict[str, Place]:
    """Return the place of each party, in their order, by a policy whose answer is checked.

    Raises SiteError when the machine has too few cores or GPUs for a policy of Seamark, UserError with every mistake
    in the answer of a user's own policy, or with the exception that it raised.
    """
    name = _name_of(policy)
    try:
        answer = policy(tuple(parties), machine)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"placement {name} failed: {type(error).__name__}: {error}. It is called with the parties and the"
            " machine, and returns a Place for each party, by name."
        ) from error
    if mistakes := list(_mistakes(answer, parties, machine)):
        raise UserError(*(f"placement {name}: {mistake}" for mistake in mistakes))
    return {party.name: answer[party.name] for party in parties}


def threads_and_cores(
    parties: Sequence[PlacedParty], found: Mapping[str, Place], machine: PartyMachine
) -> tuple[int, int] | None:
    """Return how many threads the parties under load were given, and how many cores they have for them; None where
    the placement leaves the cores to all.

    A placement divides the machine if it gives each of `parties` a limit of threads, or cores that no other of them
    has. A party's threads are that limit, else one for each of its cores: what one process with numerical libraries
    keeps busy. Threads that mostly sleep, and several processes of a party, do not count. The pair is that of all
    parties, or of the party with more threads for a core: cores that another leaves free are of no use to it. With
    more threads than cores a slowdown shows how the kernel divides time, not what the neighbour costs.
    """
    cores = {party.name: _cores(party, found[party.name], machine) for party in parties}
    shared = [cpu for own in cores.values() for cpu in own]
    taken = {cpu for cpu in shared if shared.count(cpu) > 1}
    if any(found[name].threads is None and own & taken for name, own in cores.items()):
        return None
    threads = {name: found[name].threads or len(own) for name, own in cores.items()}
    pairs = [(sum(threads.values()), len(set(shared))), *((threads[name], len(own)) for name, own in cores.items())]
    return max(pairs, key=lambda pair: pair[0] / pair[1])


def _cores(party: PlacedParty, place: Place, machine: PartyMachine) -> set[int]:
    load = {*(place.load_cores or machine.cores)}
    return load if party.in_client else load | {*(place.server_cores or machine.cores)}


def _name_of(policy: PlacementPolicy) -> str:
    named = (name for name, placement in PLACEMENTS.items() if placement is policy)
    dotted = f"{getattr(policy, '__module__', '?')}:{getattr(policy, '__qualname__', type(policy).__name__)}"
    return next(named, dotted)


def _mistakes(answer: object, parties: Sequence[PlacedParty], machine: PartyMachine) -> Iterable[str]:
    if not isinstance(answer, Mapping):
        yield f"it returned {_kind(answer)}. Return a mapping with a Place for each party, by name."
        return
    names = [party.name for party in parties]
    for party in parties:
        if party.name not in answer:
            yield f"party '{party.name}' has no place. Return one for each of {', '.join(names)}."
        elif not isinstance(place := answer[party.name], Place):
            yield f"the place of '{party.name}' is {_kind(place)}. Return a seamark.dispatch.placement.Place."
        else:
            yield from (f"the place of '{party.name}': {mistake}" for mistake in _mistakes_in(place, party, machine))
    for other in answer:
        if other not in names:
            yield f"'{other}' is no party. Parties: {', '.join(names)}.{did_you_mean(other, names)}"


def _mistakes_in(place: Place, party: PlacedParty, machine: PartyMachine) -> Iterable[str]:
    for field, noun, there in (
        ("server_cores", "core", machine.cores),
        ("load_cores", "core", machine.cores),
        ("gpus", "GPU", machine.gpus),
    ):
        yield from _mistakes_of_numbers(field, getattr(place, field), noun, there)
    if isinstance(place.gpus, tuple) and len(place.gpus) != party.gpus:
        yield f"gpus has {counted(len(place.gpus), 'GPU')}, and the party requests {party.gpus}. Give as many."
    if place.threads is not None and not (_is_whole(place.threads) and place.threads >= 1):
        yield f"threads is {place.threads!r}. Allowed: a whole number from 1 on, or None for no limit."
    if not (_is_whole(place.niceness) and 0 <= place.niceness <= NICEST):
        yield f"niceness is {place.niceness!r}. Allowed: 0 to {NICEST}."


def _mistakes_of_numbers(field: str, numbers: object, noun: str, there: Sequence[int]) -> Iterable[str]:
    if not isinstance(numbers, tuple) or not all(map(_is_whole, numbers)):
        yield f"{field} is {numbers!r}. Give a tuple of whole numbers, such as (0, 1)."
        return
    if missing := [number for number in dict.fromkeys(numbers) if number not in there]:
        yield f"{field}: there is no {noun} {_listed(missing)} on this machine. Allowed: {_listed(there) or 'none'}."
    if len(set(numbers)) < len(numbers):
        yield f"{field} is {numbers!r}: a {noun} is named twice. Name each once."


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _kind(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
