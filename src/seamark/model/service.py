"""A service: its settings, the start of its server, the abilities of its driver. Decoded from config/services."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from seamark.errors import UserError
from seamark.model.annotations import limited
from seamark.model.dotted import DOTTED
from seamark.model.origin import MEASURED, HasOrigin, Origin

LONGEST_S = 604800.0
"""A week."""
SHORTEST_TIMEOUT_S = 0.001

Value = int | float | str | bool | None
Role = Literal["deployment", "workload", "policy"]
SettingType = Literal["int", "float", "str", "bool", "structure"]
LoadKind = Literal["requests", "finite", "program"]
Component = Literal[
    "storage", "vectordb", "inference", "evaluation", "pipeline", "simulation", "program", "burner", "other", "null"
]
"""`requests`: requests for a time. `finite`: each item of a work list once; the load ends when all are done.
`program`: a Task of the driver, which runs once and records itself."""
NO_FUNCTION = "is not of the form 'module:function'."
WORDS = re.compile(r"\{words\[(\w+)\]\}")
"""A word of a server's command that stands for all words of the command line in a setting."""
URLS = re.compile(r"\{urls\[([\w-]+)\]\}")
"""A word of a command that stands for the addresses of all copies of a part, a word each."""
OPTIONS = re.compile(r"\{options\[(\w+)\]\}")
"""A word of a server's command that stands for the entries of a setting that is a JSON object, a word each."""


def entries(text: Value) -> dict[str, str]:
    """Return the entries of a setting that is a JSON object, each value as text: `true`, `8`, `64MB`; {} for None."""
    found: dict[str, Any] = json.loads(str(text or "{}"))
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in found.items()}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of a scenario: type, default, limits, and whether a change needs a new server.

    A `deployment` setting needs a new server, a `workload` setting does not; a `policy` setting of a simulation says
    who decides, which changes neither machine nor load. `alike_in_mix`: the classes of a mix cannot differ in it, for
    how replies are decoded or requests tried again. `words` are texts allowed in place of a number. A `structure` has
    mappings as levels, of the form of its name (config/forms), kept as canonical JSON. `object`: the text is a JSON
    object, which a scenario may write as a mapping. `file`: the value is the path of a file, whose content is part of
    a trial's identity; of a `dataset`, which has prompts or vectors, a file or a folder. A `required` setting has no
    default: a workload sets it. `goes_to` are the dotted paths in the server's `values` that it replaces; () for one
    that the driver alone reads.
    """

    name: str
    type: SettingType
    role: Role
    help: str
    default: Value = None
    allowed: tuple[Value, ...] | None = None
    minimum: float | None = None
    maximum: float | None = None
    unit: str | None = None
    alike_in_mix: bool = False
    words: tuple[str, ...] = ()
    object: bool = False
    file: bool = False
    dataset: Literal["prompts", "vectors"] | None = None
    required: bool = False
    goes_to: tuple[str, ...] | None = None


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
class ResetCall:
    """The request that empties the caches of a process of a server, sent to its first port.

    A server that answers it only when it was started for that names the `setting` which starts it so, and the
    `environment` that it then has.
    """

    path: str
    method: Literal["POST", "GET", "PUT", "DELETE"] = "POST"
    setting: str | None = limited(None, names="bool")
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PartImage:
    """The image of a part that differs from the server's, on a site with Apptainer.

    It replaces the recipe's `container`, and the part's own command if `command` is given.
    """

    image: str
    licence: str
    digest: str | None = None
    binds: tuple[str, ...] = ()
    command: tuple[str, ...] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Part:
    """An additional process of a server, started before its own one. Strings are templates like those of a server.

    `nodes`: `server` is the node of the server's own process, `others` each further node of the server, `each` all of
    them. Parts start in the order in which they are written, each when those before it are healthy; one without
    `health` is healthy as long as it runs. Port names are unique in a recipe: all processes know the port of a part
    on one node, only the process itself that of a part on several nodes. `environment` extends the server's.
    `container` is an image that differs from the server's.

    `count` is the setting that is the number of copies of the part, `NAME-1` and so on, which start together on the
    server's node, each with ports of its own and `{number}`, from 1. Other processes name them by `{urls[NAME]}`.
    `counters` are metrics that each copy serves at `metrics_path` of its first port, by the series of telemetry that
    they stand for (model/results/replicas.py); of a name without labels all its series are summed.
    """

    name: str
    command: tuple[str, ...]
    nodes: Literal["server", "others", "each"] = "server"
    ports: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    health: Health | None = None
    container: PartImage | None = None
    count: str | None = limited(None, names="int")
    counters: Mapping[str, str] = field(default_factory=dict)
    metrics_path: str = "/metrics"
    reset_caches: ResetCall | None = None

    def copies(self, settings: Mapping[str, Value]) -> tuple[str, ...]:
        """Return the names of its processes on a node, by the settings of a deployment."""
        if self.count is None:
            return (self.name,)
        return tuple(f"{self.name}-{number}" for number in range(1, int(settings[self.count] or 1) + 1))


@dataclass(frozen=True, kw_only=True)
class Server:
    """The start of a server. Strings are `str.format` templates.

    Template names: `{ports[NAME]}`, `{host}`, `{data}` (the deployment's private folder), `{env}` (root of the
    service's environment), `{python}` (its interpreter), `{package}` (Seamark's folder; isolated_main.py in it runs
    one of its modules in another environment), `{site_packages}`, `{libdir}` (folder of libpython),
    `{python_version}`, `{user}`, `{settings[NAME]}`, and `{switches[NAME]}`: `--some-name` for a setting `some_name`
    that is true, `--no-some-name` for one that is false; `{node}`, the name of the process's own node, with the
    address `{host}`; `{nodes}`, the number of server nodes; `{addresses[PART]}`, the address of the first node of a
    part, or with `server` of the server's own process; `{urls[PART]}` as a whole word, the addresses of the copies of
    a part with a `count`, as `http://HOST:PORT` with its first port.

    `typical_start_s` only serves to estimate a plan. `busy_waits`: the server spins while idle; on a shared machine
    it gets lower scheduling priority than the client.

    `load_nodes` divides several nodes of a deployment. `own`: the first nodes belong to the load; the server has the
    last one, or, with parts on several nodes, all but the first. `shared`: server and load both have all nodes.
    `network_environment` is then set for every process.

    `secrets` are files of `{data}` that set-up writes for the load: if the server runs as another user, they belong
    to the user of the run, and the server cannot read them. `inner_ports` are ports that no client needs, so a site
    with an external server need not name them; `external_variables` are environment variables that the load needs
    there, such as a key. `{words[NAME]}` as a whole word of `command` stands for the words of the command line in a
    setting, `{options[NAME]}` for `--key=value` of each entry of a setting with `object`. A deployment with fewer
    nodes or GPUs than `fewest_nodes` or `fewest_gpus` is refused. Before a trial with `caches: reset` each process is
    sent its `reset_caches`.

    `values` is the YAML file of values of a whole stack, relative to the recipe, absolute once it is read. It is
    rendered for each deployment, with settings where they go to (`Setting.goes_to`); `{values}` is its path then.
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
    reset_caches: ResetCall | None = None
    parts: tuple[Part, ...] = ()
    load_nodes: Literal["own", "shared"] = "own"
    fewest_nodes: int = limited(1, minimum=1)
    fewest_gpus: int = limited(0, minimum=0)
    network_environment: Mapping[str, str] = field(default_factory=dict)
    external_variables: tuple[str, ...] = ()
    values: str | None = None

    @property
    def own_commands(self) -> tuple[str, ...]:
        """Names of the settings that are command lines of the server."""
        return tuple(match[1] for word in self.command if (match := WORDS.fullmatch(word)))

    @property
    def option_settings(self) -> tuple[str, ...]:
        """Names of the settings whose entries are options of the server."""
        return tuple(match[1] for word in self.command if (match := OPTIONS.fullmatch(word)))

    @property
    def reset_calls(self) -> tuple[ResetCall, ...]:
        """The calls that together empty the caches of the server and its parts."""
        calls = (self.reset_caches, *(part.reset_caches for part in self.parts))
        return tuple(call for call in calls if call is not None)

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
        """Return the part of that name, or of which that is a copy; None for the server's own process."""
        counted, _, number = name.rpartition("-")
        whole = counted if number.isdigit() else name
        return next((part for part in self.parts if name == part.name or (part.count and whole == part.name)), None)


@dataclass(frozen=True, kw_only=True)
class External:
    """A server that runs already, as a site with `runtime: external` names it."""

    address: str = limited(missing=": HOST:PORT, or standing/ID")
    ports: Mapping[str, int] = limited(default_factory=dict, minimum=1, maximum=65_535)


@dataclass(frozen=True, kw_only=True)
class Container:
    """The image of a service on a site with Apptainer.

    `flags` is a command that prints the engine's flags: those of `command` are compared with them inside the image,
    before a job waits for an allocation. `plain_client`: a load needs no library of the service, so no environment is
    built for it. `not_run_here` is the reason why the service was not tested in the image.
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
class Quality:
    """A figure of quality that a service has: its unit, which values are better, and those that it can have.

    `range` has the least and the greatest value, None for an open end. `floor` is the value without any skill, such
    as that of random answers.
    """

    unit: str = ""
    better: Literal["higher", "lower"] = "higher"
    range: tuple[float | None, ...] = (None, None)
    floor: float | None = None
    help: str = ""


@dataclass(frozen=True, kw_only=True)
class GpuMemory:
    """The settings of a server of a language model that decide the memory of its GPUs, by name.

    `model` is the model's name or folder. Without a name the server has no such setting: parallelism of 1, a type of
    computation of 16 bits. A start whose command does not pass `gpu_memory_utilization` uses no GPU. `tokens_line` is
    a regular expression of a line of its log, with one group: the tokens whose keys and values fit; `tokens_metric`
    one of its metrics whose labels `num_gpu_blocks` and `block_size` give them.
    """

    model: str = limited(names="str")
    max_model_len: str = limited(names="int")
    gpu_memory_utilization: str = limited(names="float")
    tensor_parallel: str | None = limited(None, names="int")
    pipeline_parallel: str | None = limited(None, names="int")
    data_parallel: str | None = limited(None, names="int")
    dtype: str | None = limited(None, names="str")
    tokens_line: str | None = None
    tokens_metric: str | None = None


@dataclass(frozen=True, kw_only=True)
class FailureCategory:
    """One way in which a trial as a whole fails: what it means, and what the user can do. `can_pass` False: only a
    change by the user helps, so `max_retries` does not repeat the trial."""

    help: str
    remedy: str
    can_pass: bool = True


def sound_services(services: "Mapping[str, Service]") -> "dict[str, Service]":
    """Return the recipes without those that have a mistake: what is said of all services leaves these out."""
    sound = {}
    for name in services:
        with suppress(UserError):
            sound[name] = services[name]
    return sound


@dataclass(frozen=True, kw_only=True)
class Service(HasOrigin):
    """A declarative recipe: all facts about one service except its protocol, which is the driver's.

    `server` is None for a service inside the client: file I/O and vector libraries. `environment` names the lock file
    `envs/<environment>.lock`; None is the base environment. `workers` is the concurrency that the driver supports: an
    event loop (`wire`), threads or processes. `why` is the reason for the service in the catalogue; `in_apptainer`
    states which parts were tested in images. `load` is the kind of its loads. Of a finite one and of a program,
    `limit_s` is the default time limit, and `typical_load_s` serves to estimate a plan until loads were measured.
    `timeout_s` is the default time-out of an item of a finite one; None: that of every load.
    `check` is the function (`module:function`) that checks a workload beyond its settings: see
    `config.workload.WorkloadCheck`. `derive` is the function that says which settings follow from files that a
    workload names: see `config.workload.Derive`. `preload` is the function that yields, of the settings of a trial,
    modules which take long to import, and which the workers of all loads of a run share.
    `judge` is the function (`module:function`) that scores kept replies in a job of its own, and `qualities` are the
    scores that it gives. `failures` are categories of failed trials of its own. `origin` of a program on a virtual
    clock is `simulated`: it needs no server, and several run side by side. `gpu_memory` names the settings from which
    the memory of GPUs is known before a start, and `replicas` the setting that is the number of equal servers behind
    its address.
    """

    name: str
    component: Component
    summary: str
    version: str
    licence: str
    driver: str = limited(pattern=r"[^:]*:[^:]*", wrong="is not of the form 'package.module:Name'.")
    workers: Literal["wire", "threads", "processes"]
    settings: tuple[Setting, ...]
    load: LoadKind = "requests"
    origin: Origin = MEASURED
    check: str | None = limited(None, pattern=DOTTED.pattern, wrong=NO_FUNCTION)
    derive: str | None = limited(None, pattern=DOTTED.pattern, wrong=NO_FUNCTION)
    preload: str | None = limited(None, pattern=DOTTED.pattern, wrong=NO_FUNCTION)
    judge: str | None = limited(None, pattern=DOTTED.pattern, wrong=NO_FUNCTION)
    qualities: Mapping[str, Quality] = field(default_factory=dict)
    failures: Mapping[str, FailureCategory] = field(default_factory=dict)
    gpu_memory: GpuMemory | None = None
    replicas: str | None = limited(None, names="int")
    limit_s: float = limited(3600.0, minimum=0.1, maximum=LONGEST_S, unit="s")
    timeout_s: float | None = limited(None, minimum=SHORTEST_TIMEOUT_S, maximum=LONGEST_S, unit="s")
    typical_load_s: float = limited(60.0, minimum=0.1, maximum=LONGEST_S, unit="s")
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

    def draws_for(self, treatment: str) -> str:
        """Return what the random numbers of a trial follow from, besides seed and block. Simulated treatments share
        them, so that they differ by their settings alone."""
        return self.origin if self.virtual_clock else treatment

    def nodes_served(self, count: int) -> int:
        """Return how many of a deployment's `count` nodes belong to its server; all of them if it runs in the
        load."""
        return count if self.server is None else len(self.server.nodes_of(count))

    def load_lock(self, *, elsewhere: bool) -> str | None:
        """Return the lock with the libraries of a load; None when it needs no more than every load.

        The lock of an embedded service holds the server too; one that is `elsewhere` does not need that.
        """
        plain = elsewhere and self.container is not None and self.container.plain_client
        return None if plain else self.environment

    def unseen(self, *, contained: bool) -> str | None:
        """Return the reason why the service was not tested, in its container or without one; None if it was."""
        inside = self.container.not_run_here if contained and self.container else None
        return self.not_run_here or inside
