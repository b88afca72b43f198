"""Reader of the files of a simulated system: models with workflows, and requests. YAML or JSON, by their content."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

from seamark.config.decode import WRONG, decode, is_mapping, known_keys
from seamark.config.json_source import Rows, load_document
from seamark.config.yaml_source import Item, Mistakes, shown
from seamark.errors import UserError, did_you_mean
from seamark.model.annotations import keys_of, limited
from seamark_simulate.simulation.system import (
    LARGEST,
    Edge,
    Model,
    Request,
    System,
    Workflow,
    WorkflowNode,
    cycle_of,
)
from seamark_simulate.simulation.workload import Requests


@dataclass(frozen=True, kw_only=True, slots=True)
class _RequestKeys:
    request_id: str
    workflow_id: str
    timestamp: str | None = None
    node_execution_times: Mapping[str, float] | None = limited(None, minimum=0, largest=LARGEST)
    priority: int = 0
    deadline_seconds: float | None = limited(None, above=0, largest=LARGEST)


FREE = ("input_data", "node_configs")
"""Keys of a request with any content."""
BASE_MODEL = "base_model"
"""Key of a model that has what it leaves out from another one."""


def read_system(path: Path) -> System:
    """Return the system of a file. Raises UserError with every mistake."""
    mistakes = Mistakes()
    models, workflows = _system(load_document(path, mistakes), mistakes)
    mistakes.raise_any()
    return _whole(models, workflows)


def _whole(models: Mapping[str, Model | None], workflows: Mapping[str, Workflow | None]) -> System:
    return System(
        models={key: model for key, model in models.items() if model is not None},
        workflows={key: workflow for key, workflow in workflows.items() if workflow is not None},
    )


def read_files(system_path: Path, requests_path: Path) -> Requests:
    """Return the requests of two files with their system, and a note of keys in them that were passed over. Raises
    UserError with every mistake in both."""
    mistakes = Mistakes()
    models, workflows = _system(load_document(system_path, mistakes), mistakes)
    rows: list[_RequestRows] = []

    def begin(noted: Mistakes) -> Rows:
        rows.append(_RequestRows(workflows, noted))
        return Rows(key="requests", quick=rows[-1].quick, take=rows[-1].take)

    tree = load_document(requests_path, mistakes, begin)
    if tree is not None:
        _take_others(tree, rows[-1], mistakes)
    mistakes.raise_any()
    least = min(rows[-1].times.values(), default=None)
    keys = ", ".join(f"{key} ({where})" for key, where in sorted(mistakes.passed_over.items()))
    return Requests(
        system=_whole(models, workflows),
        requests=tuple(rows[-1].requests(least)),
        begin=None if least is None else least.strftime("%Y-%m-%d %H:%M:%S"),
        notes=(f"Keys that change nothing here: {keys}.",) if keys else (),
    )


def _own_keys(item: Item, allowed: Collection[str], mistakes: Mistakes) -> Item:
    """Return a mapping without keys that are not allowed. One that is like an allowed key is a mistake, any other is
    passed over: the files of schedulers have keys of their own."""
    if not isinstance(item.value, dict):
        return item
    if item.value.keys() <= set(allowed):
        return item
    for key, entry in item.items():
        if key in allowed:
            continue
        if did_you_mean(key, allowed):
            mistakes.unknown_key(entry, allowed)
        else:
            mistakes.passed_over.setdefault(key, f"{entry.file}:{entry.line}")
    return replace(item, value={key: entry for key, entry in item.items() if key in allowed})


def _system(tree: Item | None, mistakes: Mistakes) -> tuple[dict[str, Model | None], dict[str, Workflow | None]]:
    """Return models and workflows; None in the place of one that has a mistake."""
    if tree is None:
        return {}, {}
    tree = _own_keys(tree, ("models", "workflows"), mistakes)
    items = dict(_entries(tree, "models", mistakes))
    models = {key: _model(key, _with_base(key, items, mistakes), mistakes) for key in items}
    workflows = {key: _workflow(key, item, models, mistakes) for key, item in _entries(tree, "workflows", mistakes)}
    return models, workflows


def _entries(tree: Item, key: str, mistakes: Mistakes) -> list[tuple[str, Item]]:
    """Return the entries of a mapping that must have some."""
    item = tree.value.get(key)
    if item is None:
        mistakes.add(tree, f"the key '{key}' is missing.")
    if item is None or not is_mapping(item, mistakes):
        return []
    if not item.value:
        mistakes.add(item, "it is empty. Describe one or more.")
    return list(item.items())


def _with_base(key: str, items: Mapping[str, Item], mistakes: Mistakes) -> Item:
    """Return a model with the values of its base model, and of that one's, that it leaves out."""
    item, values, seen = items[key], dict[str, Item](), [key]
    while isinstance(item.value, dict):
        values = {**item.value, **values}
        named = item.value.get(BASE_MODEL)
        if named is None or named.value is None or (base := decode(named, str, mistakes)) is WRONG:
            break
        if base not in items:
            _unknown(named, "model", base, items, mistakes)
            break
        if base in seen:
            mistakes.add(named, f"a circle of base models: {' -> '.join([*seen, base])}. Remove one.")
            break
        seen.append(base)
        item = items[base]
    return replace(items[key], value=values) if values else items[key]


def _model(key: str, item: Item, mistakes: Mistakes) -> Model | None:
    if not is_mapping(item, mistakes):
        return None
    own = [name for name in keys_of(Model) if name != "id"]
    item = _own_keys(item, (*own, BASE_MODEL), mistakes)
    item.value.pop(BASE_MODEL, None)
    model = decode(item, Model, mistakes, given={"id": key})
    check_id(key, item, mistakes)
    for name in ("token", "inference_time") if model is not WRONG else ():
        std, mean = item.value.get(f"{name}_std"), item.value.get(f"{name}_mean")
        if std is not None and std.value is not None and (mean is None or mean.value is None):
            mistakes.add(std, f"a standard deviation without '{name}_mean'. Give both, or remove it.")
    return None if model is WRONG else cast(Model, model)


def check_id(written: str, at: Item, mistakes: Mistakes) -> None:
    """Note an id that would not be one word of a line."""
    if not _is_id(written):
        text = "an id has letters, and no line breaks: each event of a log is a line. Write another."
        mistakes.add(at, text)


def _is_id(written: str) -> bool:
    return bool(written.strip()) and written.isprintable()


def _or_empty(value: Any) -> Any:
    return {} if value is None else value


def _is_time(value: Any) -> bool:
    return type(value) in (float, int) and 0 <= value <= LARGEST


def _workflow(key: str, item: Item, models: Mapping[str, Any], mistakes: Mistakes) -> Workflow | None:
    before = mistakes.count
    if not is_mapping(item, mistakes):
        return None
    check_id(key, item, mistakes)
    item = _own_keys(item, ("name", "nodes", "edges"), mistakes)
    name = decode(item.value["name"], str, mistakes) if "name" in item.value else ""
    nodes: dict[str, WorkflowNode] = {}
    for node in _parts(item, "nodes", mistakes, needed=True):
        read: Any = decode(_own_keys(node, keys_of(WorkflowNode), mistakes), WorkflowNode, mistakes)
        if read is WRONG:
            continue
        if read.id in nodes:
            mistakes.add(node.value["id"], f"the node '{read.id}' is there already. Give each node an id of its own.")
        check_id(read.id, node.value["id"], mistakes)
        if models and read.model not in models:
            _unknown(node.value["model"], "model", read.model, models, mistakes)
        nodes[read.id] = read
    if mistakes.count > before:
        return None  # an edge to a node that was not read is no mistake of its own
    edges = _edges(item, nodes, mistakes)
    if mistakes.count > before:
        return None
    return Workflow(id=key, name=name, nodes=tuple(nodes.values()), edges=tuple(edges))


def _parts(item: Item, key: str, mistakes: Mistakes, *, needed: bool = False) -> list[Item]:
    """Return the parts of a list."""
    part = item.value.get(key)
    if part is None or (part.value is None and not needed):
        if needed:
            mistakes.add(item, f"the key '{key}' is missing.")
        return []
    if not isinstance(part.value, list):
        mistakes.add(part, f"expected a list, but it is {part.shown}. Write lines that begin with '-'.")
        return []
    if needed and not part.value:
        mistakes.add(part, "the list is empty. Write one entry or more.")
    return list(part.value)


def _unknown(at: Item, noun: str, name: str, known: Iterable[str], mistakes: Mistakes) -> None:
    names = list(known)
    guess = did_you_mean(name, names) or f" Known: {', '.join(names)}."
    mistakes.add(at, f"no {noun} has the id '{name}'.{guess}")


def _edges(item: Item, nodes: Mapping[str, WorkflowNode], mistakes: Mistakes) -> list[Edge]:
    edges: dict[tuple[str, str], Edge] = {}
    places: dict[tuple[str, str], Item] = {}
    for entry in _parts(item, "edges", mistakes):
        if not is_mapping(entry, mistakes):
            continue
        _own_keys(entry, ("from", "to", "bytes"), mistakes)
        size = decode(entry.value["bytes"], int, mistakes) if "bytes" in entry.value else 0
        if size is WRONG:
            continue
        if size < 0:
            mistakes.add(entry.value["bytes"], f"{size} is too small. Give 0 or more.")
        ends = [_end(entry, key, nodes, mistakes) for key in ("from", "to")]
        if None in ends:
            continue
        source, target = (str(end) for end in ends)
        if source == target:
            mistakes.add(entry, f"an edge from '{source}' to itself: the node would wait for its own end. Remove it.")
        elif (source, target) in edges:
            mistakes.add(entry, f"the edge from '{source}' to '{target}' is there already. Remove one.")
        else:
            edges[source, target] = Edge(source=source, target=target, data_bytes=size)
            places[source, target] = entry
    circle = cycle_of([(edge.source, edge.target) for edge in edges.values()])
    if circle:
        way = " -> ".join(circle)
        mistakes.add(places[circle[0], circle[1]], f"a cycle: {way}. Its nodes wait for each other; remove an edge.")
    return list(edges.values())


def _end(edge: Item, key: str, nodes: Iterable[str], mistakes: Mistakes) -> str | None:
    """Return the node at one end of an edge, or None after noting a mistake."""
    if key not in edge.value:
        mistakes.add(edge, f"the key '{key}' is missing.")
        return None
    name = decode(edge.value[key], str, mistakes)
    if name is WRONG:
        return None
    if name not in nodes:
        _unknown(edge.value[key], "node of this workflow", name, nodes, mistakes)
        return None
    return str(name)


class _RequestRows:
    """Takes the requests of a file one by one: the tree of all of them is ten times as large as they are."""

    def __init__(self, workflows: Mapping[str, Workflow | None], mistakes: Mistakes) -> None:
        self._workflows, self._mistakes = workflows, mistakes
        self._nodes = {key: {node.id: node for node in flow.nodes} for key, flow in workflows.items() if flow}
        self._first_time: Item | None = None
        self._zone: timedelta | None = None
        self.found: dict[str, tuple[_RequestKeys, Mapping[str, Any]]] = {}
        self.times: dict[str, datetime] = {}
        self.taken = 0

    def quick(self, row: Any) -> bool:
        """Add a request of plain values if `take` would find nothing wrong with it; return whether it was added. The
        first time stamp is left to `take`: what is said of others names its line."""
        try:
            nodes = self._nodes[row["workflow_id"]]
            free = {key: row.pop(key) for key in FREE if key in row}
            times = _or_empty(row.get("node_execution_times"))
            row["node_execution_times"] = {nodes[name].id: float(value) for name, value in times.items()}
            keys = _RequestKeys(**row)
            time = None if keys.timestamp is None else datetime.fromisoformat(keys.timestamp)
            is_right = (
                _is_id(keys.request_id)
                and keys.request_id not in self.found
                and all(map(_is_time, times.values()))
                and type(keys.priority) is int
                and (keys.deadline_seconds is None or (_is_time(keys.deadline_seconds) and keys.deadline_seconds > 0))
                and all(
                    name in nodes and (config is None or config.keys() <= set(nodes[name].config_options or config))
                    for name, config in _or_empty(free.get("node_configs")).items()
                )
                and (time is None or (self._first_time is not None and time.utcoffset() == self._zone))
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            return False
        if is_right:
            self.taken += 1
            self._add(keys, free, time)
        return is_right

    def _add(self, keys: _RequestKeys, free: Mapping[str, Any], time: datetime | None) -> None:
        self.found[keys.request_id] = keys, free
        if time is not None:
            self.times[keys.request_id] = time

    def take(self, item: Item) -> None:
        """Add a request, or note its mistakes."""
        self.taken += 1
        mistakes, before = self._mistakes, self._mistakes.count
        if not is_mapping(item, mistakes):
            return
        item = _own_keys(item, (*keys_of(_RequestKeys), *FREE), mistakes)
        plain = {key: entry for key, entry in item.items() if key not in FREE}
        short = Item(value=plain, file=item.file, line=item.line, path=item.path)
        keys: Any = decode(short, _RequestKeys, mistakes)
        time = _time(item.value.get("timestamp"), mistakes)
        free = {key: item.value[key].plain for key in FREE if key in item.value}
        if keys is WRONG:
            return
        if keys.workflow_id in self._nodes:
            _check_nodes(item, self._nodes[keys.workflow_id], mistakes)
        elif self._workflows and keys.workflow_id not in self._workflows:
            _unknown(item.value["workflow_id"], "workflow", keys.workflow_id, self._workflows, mistakes)
        check_id(keys.request_id, item.value["request_id"], mistakes)
        if mistakes.count > before:
            return
        if keys.request_id in self.found:
            text = f"the request '{keys.request_id}' is there already. Give each request an id of its own."
            mistakes.add(item.value["request_id"], text)
        if time is not None:
            self._check_zone(item.value["timestamp"], time)
        self._add(keys, free, time)

    def requests(self, begin: datetime | None) -> Iterator[Request]:
        """Yield the requests; those with a time stamp are at their time from `begin` on."""
        for name, (keys, free) in self.found.items():
            time = self.times.get(name)
            yield Request(
                id=name,
                workflow=keys.workflow_id,
                at_s=None if begin is None or time is None else (time - begin).total_seconds(),
                node_execution_times_s=keys.node_execution_times or {},
                node_configs=free.get("node_configs") or {},
                input_data=free.get("input_data"),
                priority=keys.priority,
                deadline_s=None if keys.deadline_seconds is None else float(keys.deadline_seconds),
            )

    def _check_zone(self, item: Item, time: datetime) -> None:
        """Note a time stamp in another zone than the first: their order would be a guess."""
        first = self._first_time
        if first is None:
            self._first_time, self._zone = item, time.utcoffset()
        elif time.utcoffset() != self._zone:
            text = f"{item.text} has another zone than {first.text} in line {first.line}. Write all in one zone."
            self._mistakes.add(item, text)


def _take_others(tree: Item, rows: _RequestRows, mistakes: Mistakes) -> None:
    """Add the requests of a file that were not taken one by one as it was read."""
    tree = _own_keys(tree, ("requests",), mistakes)
    for row in _parts(tree, "requests", mistakes, needed=not rows.taken):
        rows.take(row)


def _check_nodes(item: Item, nodes: Mapping[str, WorkflowNode], mistakes: Mistakes) -> None:
    """Note nodes and options of a request that its workflow does not have."""
    for key in ("node_execution_times", "node_configs"):
        entry = item.value.get(key)
        if entry is None or entry.value is None or not is_mapping(entry, mistakes):
            continue
        for name, node in entry.items():
            if name not in nodes:
                _unknown(node, "node of this workflow", name, nodes, mistakes)
            elif key == "node_configs" and node.value is not None and is_mapping(node, mistakes):
                known_keys(node, nodes[name].config_options or node.value, mistakes)


def _time(item: Item | None, mistakes: Mistakes) -> datetime | None:
    if item is None or not isinstance(item.value, str):
        return None
    try:
        return datetime.fromisoformat(item.value)
    except ValueError:
        text = f"{item.shown} is not a time in ISO 8601. Write it as 2024-01-01T10:00:00, with or without a zone."
        mistakes.add(item, text)
        return None


def require_timestamps(requests: Requests, path: Path) -> None:
    """Raise UserError where a request has no time stamp."""
    without = [request.id for request in requests.requests if request.at_s is None]
    if without:
        text = f"{len(without)} of {len(requests.requests)} requests have no 'timestamp', the first '{without[0]}'."
        raise UserError(f"{shown(path)}: {text} Give each its time stamp, or let all arrive at zero.")
