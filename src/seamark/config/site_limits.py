"""Site limits: partition, account, QoS, nodes, CPUs, memory and GPUs of a scenario against those of a site."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from seamark.errors import did_you_mean
from seamark.model.site import Site

NEEDS = ("partition", "account", "qos")
EXAMPLES = {"partition": "partition: gpu", "account": "account: p200000", "qos": "qos: default"}
Lines = Mapping[str, str]
"""Dotted path of a part ("resources.gpus") -> its place ("file.yaml:7: resources.gpus")."""


@dataclass(frozen=True, kw_only=True)
class SiteRequest:
    """Resources that a run requests from a site. `resources` holds every level; `gpu_nodes` is the number of nodes
    that the GPUs are spread over, None for all."""

    partition: str | None
    account: str | None
    qos: str | None
    resources: Mapping[str, tuple[int, ...]]
    gpu_nodes: int | None = None


def limit_violations(asked: SiteRequest, site: Site, lines: Lines) -> list[str]:
    """Return a line for each request that the site cannot satisfy."""
    return [*_missing(asked, site, lines), *_unknown(asked, site, lines), *_too_much(asked, site, lines)]


def _missing(asked: SiteRequest, site: Site, lines: Lines) -> Iterator[str]:
    for key in NEEDS:
        if getattr(asked, key) is not None:
            continue
        names = site.partitions if key == "partition" else site.qos if key == "qos" else ()
        known = f" Known: {', '.join(names)}." if names else ""
        start = f"{_at(lines, '')}: {key}: missing;"
        if key in site.needs:
            yield f"{start} the site '{site.name}' needs it. Add a line such as '{EXAMPLES[key]}'.{known}"
        elif key == "account" and asked.partition is not None:
            yield f"{start} a job on a partition is charged to one. Add a line such as '{EXAMPLES[key]}'."
        elif key == "partition" and asked.account is not None:
            yield f"{start} a job with an account needs one. Add a line such as '{EXAMPLES[key]}'.{known}"


def _unknown(asked: SiteRequest, site: Site, lines: Lines) -> Iterator[str]:
    for key, name, known in (("partition", asked.partition, site.partitions), ("qos", asked.qos, site.qos)):
        if name is not None and known and name not in known:
            guess = did_you_mean(name, known)
            yield f"{_at(lines, key)}: '{name}' is not at the site '{site.name}'. Known: {', '.join(known)}.{guess}"


def _too_much(asked: SiteRequest, site: Site, lines: Lines) -> Iterator[str]:
    name = asked.partition
    gpus = max(asked.resources.get("gpus", (0,)))
    per_node = -(-gpus // (asked.gpu_nodes or max(asked.resources.get("nodes", (1,)))))
    at = _at(lines, "resources.gpus")
    if not site.partitions and gpus and name is not None and name.lower().startswith("cpu"):
        yield f"{at}: {gpus} GPUs are requested, but the partition '{name}' has none. Use 'partition: gpu'."
    if name is None or name not in site.partitions:
        return
    has = site.partitions[name]
    if per_node > has.gpus:
        nodes = max(asked.resources.get("nodes", (1,)))
        better = _better(gpus, per_node, site)
        if asked.gpu_nodes is not None and asked.gpu_nodes < nodes:
            better = f"The server has {asked.gpu_nodes} of the {nodes} nodes, and the load the other. {better}"
        yield f"{at}: {per_node} a node, but a node of the partition '{name}' has {has.gpus} GPUs. {better}"
    for key, limit, noun in (
        ("nodes", has.nodes, "nodes"),
        ("cpus_per_task", has.cpus, "CPUs"),
        ("mem_gb", has.mem_gb, "GB"),
    ):
        most = max(asked.resources.get(key, (0,)))
        if most > limit:
            whose = "the partition" if key == "nodes" else "a node of the partition"
            yield f"{_at(lines, f'resources.{key}')}: {most} is more than {whose} '{name}' has: {limit} {noun}."


def _better(gpus: int, per_node: int, site: Site) -> str:
    fitting = [key for key, partition in site.partitions.items() if partition.gpus >= per_node]
    if fitting:
        return f"Use 'partition: {fitting[0]}'."
    most = max(partition.gpus for partition in site.partitions.values())
    return f"Spread them over {-(-gpus // most)} nodes ('resources.nodes')." if most else "The site has no GPUs."


def _at(lines: Lines, path: str) -> str:
    return lines.get(path) or lines.get("", "scenario")
