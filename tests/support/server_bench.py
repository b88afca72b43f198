"""A bench for servers: deployments of tiny_server.py in a temporary study; and what tests ask of processes."""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from seamark.dispatch.placement import Place
from seamark.model.service import Service
from seamark.model.site import Site
from seamark.model.trial import Deployment
from seamark.services.images.images import Image
from seamark.services.supervisor import deployment as servers
from seamark.services.supervisor.launch_spec import LaunchSpec
from seamark.storage.codec import encode
from seamark.storage.documents import read_json
from seamark.storage.paths import DeploymentFolder

HERE = Path(__file__).parent
TINY = ("{python}", str(HERE / "tiny_server.py"), "{ports[main]}", "--host", "{host}")


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One study in a temporary folder."""

    root: Path
    site: Site
    service: Service
    folders: list[DeploymentFolder] = field(default_factory=list)

    @property
    def results(self) -> Path:
        return self.root / "results"

    def with_server(self, *flags: str, **changes: Any) -> "Bench":
        """Return the same bench with other flags of the tiny server and other fields of its recipe."""
        assert self.service.server is not None
        server = replace(self.service.server, **{"command": (*TINY, *flags), **changes})
        return replace(self, service=replace(self.service, server=server))

    def with_site(self, **changes: Any) -> "Bench":
        return replace(self, site=replace(self.site, **changes))

    def with_service(self, **changes: Any) -> "Bench":
        return replace(self, service=replace(self.service, **changes))

    def folder(self, name: str = "tiny-0001") -> DeploymentFolder:
        return DeploymentFolder(root=self.results / "study" / "deployments" / name)

    def deployment(self, name: str = "tiny-0001", **settings: Any) -> Deployment:
        return Deployment(id=name, service="tiny", settings=settings, nodes=1, gpus=0, cpus_per_task=1, mem_gb=1)

    def data(self, name: str = "tiny-0001") -> Path:
        return self.root / "scratch" / "study" / name

    def serve(
        self,
        name: str = "tiny-0001",
        *,
        image: Image | None = None,
        part_images: Mapping[str, Image] | None = None,
        client: Image | None = None,
        binds: tuple[str, ...] = (),
        gpus: int = 0,
        nodes: int = 1,
        place: Place | None = None,
        **settings: Any,
    ) -> dict[str, Any]:
        self.folders.append(self.folder(name))
        deployment = replace(self.deployment(name, **settings), gpus=gpus, nodes=nodes)
        images = {"image": image, "part_images": part_images or {}, "client": client}
        spec = self.spec(name, deployment=deployment, **images, binds=binds, place=place, study=HERE)
        return dict(encode(servers.serve(spec, self.root / "envs")))

    def spec(self, name: str = "tiny-0001", **changes: Any) -> LaunchSpec:
        """Return what a supervisor would be told."""
        spec = LaunchSpec(
            deployment=self.deployment(name),
            service=self.service,
            site=self.site,
            folder=self.folder(name),
            scenario="study",
            seed=7,
        )
        return replace(spec, **changes)

    def end(self, name: str = "tiny-0001") -> Mapping[str, Any]:
        return read_json(self.folder(name).runtime / "end.json")


def runs(pid: int) -> bool:
    """Return whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def left_of(bench: Bench) -> list[str]:
    """Return the command lines of all processes that mention the bench's folder, but for our own."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if os.fsencode(bench.root) in words and runs(int(entry.name)):
                found.append(words[:200].decode(errors="replace"))
    return found


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
