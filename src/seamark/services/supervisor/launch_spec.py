"""What a keeper is told to serve. It goes to the keeper's standard input when it is started."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from seamark.dispatch.resources import gpus_per_node
from seamark.model.service import Service
from seamark.model.site import Site
from seamark.model.trial import Deployment
from seamark.services.images.images import Image
from seamark.storage.paths import DeploymentFolder

MARK = "SEAMARK_KEEPER"
"""Environment variable of every process of a deployment: the folder of its keeper's signs."""


@dataclass(frozen=True, kw_only=True)
class LaunchSpec:
    """One deployment to be served. Paths are absolute; `environment` is None for the base; `shards` are the most
    workers that one of its loads asks for. `image` is what its server runs in, `part_images` what those parts do that
    have one of their own, by name, and `client` what the workers of its loads run in, None outside of containers."""

    deployment: Deployment
    service: Service
    site: Site
    folder: DeploymentFolder
    scenario: str
    seed: int
    environment: Path | None
    image: Image | None = None
    part_images: Mapping[str, Image] = field(default_factory=dict)
    client: Image | None = None
    binds: tuple[str, ...] = ()
    shards: int = 1

    @property
    def gpus_per_node(self) -> int:
        """The GPUs of each node of the server, as they are asked of the batch system."""
        return gpus_per_node(self.deployment, self.service)
