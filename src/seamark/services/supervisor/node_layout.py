"""On which nodes of a Slurm job the load of a deployment runs and on which its server. Starts nothing there."""

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seamark.dispatch.identity import node
from seamark.errors import SiteError, UserError
from seamark.model.service import Part, Service
from seamark.model.trial import Deployment

ASK_S = 60.0
LOOPBACK = "127."


@dataclass(frozen=True, kw_only=True)
class Node:
    """A machine: its name, the address at which others reach it, and whether it is the one we run on."""

    name: str
    host: str
    here: bool


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The nodes of a deployment: those of its loads, and those of its server, of which the first has the server's own
    process. A node can be both."""

    load: tuple[Node, ...]
    server: tuple[Node, ...]

    @property
    def main(self) -> Node:
        """The node of the server's own process."""
        return self.server[0]

    @property
    def here(self) -> bool:
        """Whether anything of the server runs on our own node."""
        return any(node.here for node in self.server)

    @property
    def remote(self) -> tuple[Node, ...]:
        """The server's nodes that are not the one we run on."""
        return tuple(node for node in self.server if not node.here)

    def of(self, part: Part) -> tuple[Node, ...]:
        """Return the nodes of a part."""
        return {"server": self.server[:1], "others": self.server[1:], "each": self.server}[part.nodes]


def placement_of(deployment: Deployment, service: Service, address: str) -> Placement:
    """Return where the load and the server of a deployment run; `address` is ours where it has one node only.

    Raises UserError when the recipe needs more nodes, SiteError when there is no Slurm job here that has as many.
    """
    require_enough(deployment, service)
    server = service.server
    if deployment.nodes == 1 or server is None:
        alone = (Node(name=node(), host=address, here=True),)
        return Placement(load=alone, server=alone)
    found = nodes_here(deployment.nodes)
    places = server.nodes_of(len(found))
    load = found if server.load_nodes == "shared" else found[: places.start]
    return Placement(load=load, server=tuple(found[place] for place in places))


def require_enough(deployment: Deployment, service: Service) -> None:
    """Raise UserError when a deployment has fewer nodes than its service needs."""
    fewest = service.server.fewest_nodes if service.server else 1
    if deployment.nodes < fewest:
        raise UserError(
            f"service '{service.name}' needs {fewest} nodes at least, and the deployment has {deployment.nodes}."
            f" Write 'resources: {{nodes: {fewest}}}' in the scenario."
        )


def nodes_here(count: int, environment: Mapping[str, str] = os.environ) -> tuple[Node, ...]:
    """Return `count` nodes of the Slurm job that we run in, our own first. Raises SiteError where that cannot be."""
    job = environment.get("SLURM_JOB_ID")
    if not job:
        raise SiteError(
            f"a deployment of {count} nodes needs a Slurm job of as many, and there is none here (SLURM_JOB_ID is not"
            " set). Run it through a site with Slurm, or within `sbatch --nodes`; or set 'resources: {nodes: 1}'."
        )
    if missing := [name for name in ("srun", "scontrol", "squeue") if shutil.which(name) is None]:
        raise SiteError(f"there is no {missing[0]} on PATH. Load Slurm's module on the nodes of its jobs.")
    # SLURM_JOB_NODELIST does not do: within a step of one node it names that node alone
    listed = _said("squeue", "--noheader", "--format=%N", f"--jobs={job}").strip()
    if not listed:
        raise SiteError(f"job {job} (SLURM_JOB_ID) has no nodes: it is not running.")
    addresses = node_addresses(_said("scontrol", "--oneliner", "show", "node", listed))
    names = [name for name in _said("scontrol", "show", "hostnames", listed).split() if name in addresses]
    ours = own_name(names)
    if ours is None:
        raise SiteError(
            f"a deployment of {count} nodes is served from one of them, and {node()} is none of those of job {job}"
            f" ({', '.join(names)}). Run it within the job: by `sbatch`, or by"
            f" `srun --jobid={job} --nodes=1 --ntasks=1 --overlap`."
        )
    if len(names) < count:
        raise SiteError(f"job {job} has {len(names)} nodes ({', '.join(names)}), and the deployment needs {count}.")
    ordered = [ours, *(name for name in names if name != ours)][:count]
    hosts = {name: resolved(addresses[name]) for name in ordered}
    if hosts[ours].startswith(LOOPBACK) and not all(host.startswith(LOOPBACK) for host in hosts.values()):
        hosts[ours] = own_address(hosts[ordered[1]])
    return tuple(Node(name=name, host=hosts[name], here=name == ours) for name in ordered)


def resolved(host: str) -> str:
    """Return the address of a host as numbers, since not every server takes a name; the name where that fails."""
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host


def own_address(other: str) -> str:
    """Return our address as another node sees it: of our own name, many machines know a loopback address only."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect((other, 9))  # sends nothing: the kernel only looks up the way
        return str(asked.getsockname()[0])


def own_name(names: Sequence[str]) -> str | None:
    """Return which of these nodes we run on: by Slurm's word where there is one, else by the name of this machine."""
    whole = socket.gethostname()
    known = (os.environ.get("SLURMD_NODENAME"), whole, whole.partition(".")[0])
    return next((name for name in known if name in names), None)


def node_addresses(told: str) -> dict[str, str]:
    """Return the addresses (NodeAddr) by name from what `scontrol --oneliner show node` says."""
    found = {}
    for line in told.splitlines():
        facts = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if name := facts.get("NodeName"):
            found[name] = facts.get("NodeAddr") or name
    return found


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ASK_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SiteError(f"`{' '.join(command)}` gave no answer ({error}).") from error
    if done.returncode != 0:
        raise SiteError(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.returncode}.")
    return done.stdout
