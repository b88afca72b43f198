"""Differences of machine and software between two results, by the meta.json of their trials. Pure."""

from collections.abc import Iterable, Iterator

from seamark.model.results.comparison import Difference
from seamark.model.results.trial_meta import Machine, TrialMeta


def environment_differences(base: Iterable[TrialMeta], new: Iterable[TrialMeta]) -> tuple[Difference, ...]:
    """Return each fact whose values differ between the trials of two results; unknown ones count as no value."""
    one, other = _all_facts(base), _all_facts(new)
    return tuple(
        Difference(fact=fact, base=tuple(one.get(fact, ())), new=tuple(other.get(fact, ())))
        for fact in dict.fromkeys((*one, *other))
        if set(one.get(fact, ())) != set(other.get(fact, ()))
    )


def _all_facts(metas: Iterable[TrialMeta]) -> dict[str, dict[str, None]]:
    facts: dict[str, dict[str, None]] = {}
    for meta in metas:
        for fact, value in _facts(meta):
            if value not in (None, "", ()):
                facts.setdefault(fact, {})[str(value)] = None
    return facts


def _facts(meta: TrialMeta) -> Iterator[tuple[str, object]]:
    """Yield the facts of one trial that may change its speed, and those that say what was measured."""
    server, software = meta.server_identity, meta.software
    yield "site", server.site if server else None
    yield "machine", (server.machine if server else None) or meta.node
    yield "partition", meta.partition
    yield "runtime", meta.runtime
    yield "service version", meta.service_version
    yield "lock of the environment", software.lock_sha256 and software.lock_sha256[:12]
    images = server.image_digests if server else None
    for name, digest in (images or {}).items():
        yield f"image {name}", digest
    yield "container", meta.container_digest
    yield "container of the client", meta.client_container.digest if meta.client_container else None
    yield "server identity", server.digest and server.digest[:12] if server else None
    yield "Seamark", software.seamark
    yield "Python", software.python
    yield "commit of the study", software.git_commit or meta.git_commit
    yield (
        "uncommitted changes",
        {True: "yes", False: "no"}.get(bool(software.git_dirty)) if software.git_commit else None,
    )
    for node in meta.all_nodes().values():
        if node.machine is not None:
            yield from _machine(node.machine)


def _machine(machine: Machine) -> Iterator[tuple[str, object]]:
    yield "host", machine.hostname
    yield "CPU", machine.cpu_model or machine.cpu.model
    yield "CPUs", machine.cpus_logical
    yield "CPUs allowed", len(machine.cpus_allowed) or machine.cpu.allowed
    yield "microcode", machine.cpu.microcode
    yield "governor", machine.governor
    yield "turbo", machine.cpu.turbo
    yield "memory", f"{machine.memory_bytes / 2**30:.1f} GiB" if machine.memory_bytes else None
    yield "transparent huge pages", machine.transparent_hugepages
    yield "kernel", machine.kernel
    yield "operating system", machine.os
    yield "clock source", machine.clock.source
    yield "GPU driver", machine.gpu.driver
    yield "CUDA", machine.gpu.cuda
    names = [str(gpu.name) for gpu in machine.gpu.devices]
    yield "GPUs", ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    for gpu in machine.gpu.devices:
        yield "GPU power cap", f"{gpu.power_cap_w:g} W" if gpu.power_cap_w else None
