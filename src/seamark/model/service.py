"""A service: its settings, the start of its server, the abilities of its driver. Decoded from config/services."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Value = int | float | str | bool | None
Role = Literal["deployment", "workload"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of a scenario: type, default, limits, and whether a change needs a new server.

    A `deployment` setting needs a new server, a `workload` setting does not. `alike_in_mix`: the setting decides how
    replies are decoded, so the classes of a mix cannot differ in it. `words` are texts allowed in place of a number.
    """

    name: str
    type: Literal["int", "float", "str", "bool"]
    role: Role
    help: str
    default: Value = None
    allowed: tuple[Value, ...] | None = None
    minimum: float | None = None
    maximum: float | None = None
    unit: str | None = None
    alike_in_mix: bool = False
    words: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Health:
    """Health probe of a server. For every probe, the listening socket must belong to a process of the server."""

    probe: Literal["http", "tcp", "command"] = "tcp"
    port: str = "main"
    path: str = "/"
    command: tuple[str, ...] = ()
    interval_s: float = 0.1
    timeout_s: float = 60.0


@dataclass(frozen=True, kw_only=True)
class PartImage:
    """The image that a part has for itself where the site's runtime is Apptainer; else it is in the server's.

    What is here stands for the recipe's `container` and for the part's own command, where `command` is given.
    """

    image: str
    licence: str
    digest: str | None = None
    binds: tuple[str, ...] = ()
    command: tuple[str, ...] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Part:
    """A process that a server needs beside its own one, started before it. Strings are templates as a server's.

    `nodes`: `server` is the node of the server's own process, `others` each further node of the server, `each` all
    of them. Parts start in the order in which they are written, each when those before it are healthy; one without
    `health` is healthy as long as it runs. Names of ports are unique in a recipe: a port of a part on one node is
    known to all, one of a part on several nodes only to that process itself. `environment` comes on top of the
    server's. `container` is an image that is not the server's.
    """

    name: str
    command: tuple[str, ...]
    nodes: Literal["server", "others", "each"] = "server"
    ports: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    health: Health | None = None
    container: PartImage | None = None


@dataclass(frozen=True, kw_only=True)
class Server:
    """How to start a server. Strings are `str.format` templates.

    Names known to the templates: `{ports[NAME]}`, `{host}`, `{data}` (the deployment's private folder), `{env}` (root
    of the service's environment), `{python}` (its interpreter), `{package}` (seamark's own folder, whose
    isolated_main.py runs one of its modules in another environment), `{site_packages}`, `{libdir}` (where libpython
    lies), `{python_version}`, `{user}`, `{settings[NAME]}`, and `{switches[NAME]}`: for a setting `some_name` that is
    true `--some-name`, for one that is false `--no-some-name`; `{node}`, the name of the process's own node, whose
    address is `{host}`; `{nodes}`, how many nodes the server has; `{addresses[PART]}`, the address of the first node
    of a part, or with `server` of the server's own process. `typical_start_s` only serves to estimate a plan.
    `busy_waits`: it spins while it waits, so that on the same machine everything else goes first.

    `load_nodes` says whose the nodes are when a deployment has several. `own`: the first nodes are the load's alone;
    the server has the last one, or, with parts on several nodes, all but the first. `shared`: the server has all
    of them from the first one on, and so has the load. `network_environment` is set for every process then.
    `secrets` are files of `{data}` that set-up writes for the load alone: of a server that another user runs, these
    are the run's own user's, and that other user cannot read them.
    `inner_ports` are those of its ports that no client needs: of somebody else's server they are not asked.
    """

    command: tuple[str, ...]
    setup: tuple[tuple[str, ...], ...] = ()
    ports: tuple[str, ...] = ("main",)
    inner_ports: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    health: Health = field(default_factory=Health)
    refuses_root: bool = False
    secrets: tuple[str, ...] = ()
    stop_signal: Literal["SIGTERM", "SIGINT", "SIGQUIT"] = "SIGTERM"
    stop_timeout_s: float = 10.0
    typical_start_s: float = 3.0
    busy_waits: bool = False
    metrics_port: str | None = None
    metrics_path: str = "/metrics"
    parts: tuple[Part, ...] = ()
    load_nodes: Literal["own", "shared"] = "own"
    fewest_nodes: int = 1
    network_environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def spans(self) -> bool:
        """Whether parts run on more than one node, if there are several."""
        return any(part.nodes != "server" for part in self.parts)

    def nodes_of(self, count: int) -> range:
        """Return which of a deployment's `count` nodes, counted from 0, belong to the server."""
        if count == 1 or self.load_nodes == "shared":
            return range(count)
        return range(1 if self.spans else count - 1, count)

    def part(self, name: str) -> Part | None:
        """Return the part of that name, or None."""
        return next((part for part in self.parts if part.name == name), None)


@dataclass(frozen=True, kw_only=True)
class Container:
    """The image a service runs in where the site's runtime is Apptainer.

    `flags` is a command that prints what flags the engine knows: those of `command` are held against it inside the
    image, before anything waits for an allocation. `plain_client`: a load on it needs no library of the service, so
    that the service's environment is not made for it. `not_run_here` says what was not seen running in it, as that of
    a service does of the whole.
    """

    image: str
    digest: str | None = None
    binds: tuple[str, ...] = ()
    command: tuple[str, ...] | None = None
    flags: tuple[str, ...] = ()
    plain_client: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    not_run_here: str | None = None


@dataclass(frozen=True, kw_only=True)
class Service:
    """A declarative recipe: everything Seamark knows about one service, but how to speak to it (its driver).

    `server` is None for what runs inside the client: file I/O and vector libraries. `environment` names the
    lock file `envs/<environment>.lock`; None is the base environment. `workers` says what the driver bears:
    an event loop (`wire`), threads or processes. `why` says why it is here and what it stands for; `in_apptainer`
    what of it was seen running in images, and what was not.
    """

    name: str
    component: Literal["storage", "inference", "vectordb", "null"]
    summary: str
    version: str
    licence: str
    driver: str
    workers: Literal["wire", "threads", "processes"]
    settings: tuple[Setting, ...]
    environment: str | None = None
    server: Server | None = None
    container: Container | None = None
    not_run_here: str | None = None
    why: str = ""
    in_apptainer: str = ""
    notes: str = ""

    def setting(self, name: str) -> Setting | None:
        """Return the setting of that name, or None."""
        return next((setting for setting in self.settings if setting.name == name), None)

    def nodes_served(self, count: int) -> int:
        """Return how many of a deployment's `count` nodes belong to its server; all of them if it runs in the
        load."""
        return count if self.server is None else len(self.server.nodes_of(count))

    def unseen(self, *, contained: bool) -> str | None:
        """Return the reason why the service was not tested, in its container or without one; None if it was."""
        inside = self.container.not_run_here if contained and self.container else None
        return self.not_run_here or inside
