"""Nodes of a deployment: which run its load and which its server."""

from dataclasses import dataclass

from seamark.dispatch.dispatcher import dispatcher_here
from seamark.dispatch.identity import node
from seamark.dispatch.job import Node
from seamark.errors import UserError
from seamark.model.service import Part, Service
from seamark.model.trial import Deployment


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

    Raises UserError when the recipe needs more nodes, SiteError when this process runs in no batch job of as many.
    """
    require_enough(deployment, service)
    server = service.server
    if deployment.nodes == 1 or server is None:
        alone = (Node(name=node(), host=address, here=True),)
        return Placement(load=alone, server=alone)
    found = dispatcher_here().nodes(deployment.nodes)
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
