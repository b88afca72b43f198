"""The Slurm allocation of this process: its nodes, their addresses, and steps that run processes on them."""

import os
import shutil
import socket
from collections.abc import Mapping, Sequence

from seamark.dispatch.identity import node, node_names
from seamark.dispatch.job import Node
from seamark.dispatch.slurm.commands import answer
from seamark.errors import SiteError

LOOPBACK = "127."
KEPT = ("SLURM_CONF",)
"""The only variables of Slurm that a step inherits: those of the step we are in would shape the new one."""


def step(job: str, tasks: int, nodes: Sequence[str], command: Sequence[str], count: int | None = None) -> list[str]:
    """Return the command line of a job step of `tasks` tasks: over `nodes`, over `count` nodes, or over all.

    It shares the resources of other steps, binds no task to CPUs, and the end of one task ends no other.
    """
    placed = (f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}") if nodes else ()
    return [
        *("srun", f"--jobid={job}", f"--ntasks={tasks}", "--overlap", "--distribution=cyclic"),
        *(placed or ((f"--nodes={count}",) if count else ())),
        *("--kill-on-bad-exit=0", "--no-kill", "--wait=0", "--mem=0", "--cpu-bind=none", "--export=ALL"),
        *("--label", "--quiet", *command),
    ]


def step_environment() -> dict[str, str]:
    """Return this process's environment without the variables of its own job step."""
    return {name: value for name, value in os.environ.items() if name in KEPT or not name.startswith("SLURM_")}


def nodes_of(job: str, count: int) -> tuple[Node, ...]:
    """Return `count` nodes of a job that runs, this process's own first. Raises SiteError where that cannot be."""
    if missing := [name for name in ("srun", "scontrol", "squeue") if shutil.which(name) is None]:
        raise SiteError(f"there is no {missing[0]} on PATH. Load Slurm's module on the nodes of its jobs.")
    # SLURM_JOB_NODELIST does not do: within a step of one node it names that node alone
    nodelist = answer("squeue", "--noheader", "--format=%N", f"--jobs={job}").strip()
    if not nodelist:
        raise SiteError(f"job {job} (SLURM_JOB_ID) has no nodes: it is not running.")
    addresses = node_addresses(answer("scontrol", "--oneliner", "show", "node", nodelist))
    names = [name for name in answer("scontrol", "show", "hostnames", nodelist).split() if name in addresses]
    own = own_name(names)
    if own is None:
        raise SiteError(
            f"a deployment of {count} nodes is served from one of them, and {node()} is none of those of job {job}"
            f" ({', '.join(names)}). Run it within the job: by `sbatch`, or by"
            f" `srun --jobid={job} --nodes=1 --ntasks=1 --overlap`."
        )
    if len(names) < count:
        raise SiteError(f"job {job} has {len(names)} nodes ({', '.join(names)}), and the deployment needs {count}.")
    ordered = [own, *(name for name in names if name != own)][:count]
    hosts = {name: resolved(addresses[name]) for name in ordered}
    if hosts[own].startswith(LOOPBACK) and not all(host.startswith(LOOPBACK) for host in hosts.values()):
        hosts[own] = own_address(hosts[ordered[1]])
    return tuple(Node(name=name, host=hosts[name], here=name == own) for name in ordered)


def address_of(node: str) -> str:
    """Return the address (NodeAddr) of a node, its name where Slurm does not say."""
    try:
        return node_addresses(answer("scontrol", "--oneliner", "show", "node", node)).get(node, node)
    except SiteError:
        return node


def resolved(host: str) -> str:
    """Return the numeric address of a host, since not every server takes a name; the name where that fails."""
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host


def own_address(other: str) -> str:
    """Return this node's address as another one sees it: many nodes resolve their own name to a loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((other, 9))  # sends nothing: the kernel only looks up the route
        return str(probe.getsockname()[0])


def own_name(names: Sequence[str]) -> str | None:
    """Return which of these nodes this process runs on, None for none of them."""
    return next((name for name in node_names() if name in names), None)


def node_addresses(listing: str) -> Mapping[str, str]:
    """Return the addresses (NodeAddr) by name from the output of `scontrol --oneliner show node`."""
    addresses = {}
    for line in listing.splitlines():
        facts = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if name := facts.get("NodeName"):
            addresses[name] = facts.get("NodeAddr") or name
    return addresses
