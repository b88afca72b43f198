"""A pipeline file read into its graphs, with every mistake in it at once. Imports no stage."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from seamark.config.yaml_source import Item, Mistakes, load
from seamark.errors import Code, did_you_mean
from seamark_pipelines.flow.classes import ANY, methods_of, words_of
from seamark_pipelines.flow.schedulers import OURS
from seamark_pipelines.flow.source_names import LIBRARIES
from seamark_pipelines.model.graph import (
    FIRST_SUBMITTED,
    MAX_QUERIES,
    MERGE,
    POLICIES,
    QUEUE_DEPTH,
    SINGLE,
    TIMEOUT_S,
    LoadGen,
    PipelineFile,
    PipelineModel,
    StageModel,
)

TOP = ("name", "pipelines", "listeners")
PIPELINE = (
    *("name", "inputs", "outputs", "dataset_stage_id", "loadgen", "stages"),
    *("serialize_queries", "max_in_flight"),
)
LOADGEN = ("component", "queue_depth", "max_queries", "timeout", "config")
STAGE = (
    *("name", "id", "outputs", "component", "config", "polling_policy", "disable_logs"),
    *("max_input_queue_depth", "max_in_flight", "timed", "copy", "repeat"),
)
LISTENERS = ("smi", "dcgmi", "top", "iostat", "free", "ps", "macmon")
APPLE = ("stages.llm_mlx", "stages.anemll", "stages.coreml")
REFERENCES = ("_stage_id", "depends_on_id")
"""Ends of the keys of a stage's configuration that name other stages."""
_COMPONENT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_NUMBER = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def slug_of(name: str) -> str:
    """Return a name as ids and folders have it: lower case, with '_' for all but letters and digits."""
    return re.sub(r"\W+", "_", name.lower()).strip("_")[:32].rstrip("_") or "pipeline"


def distinct(names: Iterable[str]) -> list[str]:
    """Return slugs of names: equal ones get _2, _3 and so on."""
    found: list[str] = []
    for name in names:
        slug = first = slug_of(name)
        number = 1
        while slug in found:
            number += 1
            slug = f"{first}_{number}"
        found.append(slug)
    return found


def read_pipelines(path: Path) -> PipelineFile:
    """Return the pipelines of a file. Raises UserError with every mistake in it."""
    mistakes = Mistakes()
    tree = load(path, mistakes)
    file = None if tree is None else _Reader(mistakes).file(tree, path.stem)
    mistakes.raise_any()
    assert file is not None
    return file


class _Reader:
    """Reads one file; unknown keys are passed over and kept with their first places."""

    def __init__(self, mistakes: Mistakes) -> None:
        self._mistakes = mistakes
        self.notes: list[str] = []
        self._unread: set[str] = set()

    def file(self, tree: Item, stem: str) -> PipelineFile | None:
        before = self._mistakes.count
        self._pass_over(tree, TOP)
        name = self._value(tree, "name", str, stem)
        listeners = self._listeners(tree)
        items = self._list(tree, "pipelines", required=True)
        pipelines = [self._pipeline(item) for item in items if self._is_mapping(item)]
        slugs = distinct(pipeline["name"] for pipeline in pipelines)
        if not items and tree.value.get("pipelines") is not None:
            self._add(tree.value["pipelines"], "no pipeline: write at least one.", "no_value")
        if self._mistakes.count != before:
            return None
        models = tuple(PipelineModel(**pipeline, slug=slug) for pipeline, slug in zip(pipelines, slugs, strict=True))
        return PipelineFile(
            name=name,
            slug=slug_of(name),
            pipelines=models,
            listeners=listeners,
            unread=dict(self._mistakes.passed_over),
            notes=tuple(self.notes),
        )

    def _pipeline(self, item: Item) -> dict[str, Any]:
        self._pass_over(item, PIPELINE)
        stage_items = [stage for stage in self._list(item, "stages", required=True) if self._is_mapping(stage)]
        stages = [self._stage(stage) for stage in stage_items]
        slugs = distinct(stage["name"] for stage in stages)
        models = [StageModel(**stage, slug=slug) for stage, slug in zip(stages, slugs, strict=True)]
        entries = [entry.value for entry in self._entries(item, "inputs")]
        models = [self._with_policy(stage, models, entries) for stage in models]
        ids = {stage.id for stage in models}
        for stage_item, stage in zip(stage_items, models, strict=True):
            if stage.config:
                config = stage_item.value["config"]
                self._check_references(config, ids)
                self._check_model(config)
                self._note_unread(config, stage)
        found: dict[str, Any] = {
            "name": self._value(item, "name", str, "pipeline"),
            "inputs": self._ids(item, "inputs", ids, required=True),
            "outputs": self._ids(item, "outputs", ids, required=True),
            "loadgen": self._loadgen(item),
            "stages": tuple(models),
            "serialize_queries": self._value(item, "serialize_queries", bool, False),
            "max_in_flight": self._value(item, "max_in_flight", int, None, lowest=1),
        }
        dataset = self._value(item, "dataset_stage_id", int, found["inputs"][0] if found["inputs"] else 0)
        if ids and dataset not in ids:
            at = item.value.get("dataset_stage_id", item)
            self._add(at, f"{dataset} is the id of no stage.{_known(dataset, ids)}", "unknown_name")
        found["dataset_stage_id"] = dataset
        if models:
            self._check_graph(item, dict(zip((stage.id for stage in models), stage_items, strict=False)), found)
        return found

    def _with_policy(self, stage: StageModel, others: list[StageModel], entries: list[Any]) -> StageModel:
        """Return a stage with a policy where none is written: that for one input, or for several."""
        if stage.polling_policy:
            return stage
        count = entries.count(stage.id) + sum(stage.id in other.outputs for other in others)
        if count > 1:
            self.notes.append(f"'{stage.name}' has {count} inputs and no polling_policy: it is {FIRST_SUBMITTED}.")
        return replace(stage, polling_policy=FIRST_SUBMITTED if count > 1 else SINGLE)

    def _stage(self, item: Item) -> dict[str, Any]:
        self._pass_over(item, STAGE)
        policy = str(self._value(item, "polling_policy", str, ""))
        if policy and policy.rpartition(".")[2] not in POLICIES:
            names = ", ".join(POLICIES)
            guess = did_you_mean(policy.rpartition(".")[2], POLICIES)
            self._add(item.value["polling_policy"], f"'{policy}' is none of {names}.{guess}", "not_a_choice")
        found: dict[str, Any] = {
            "id": self._value(item, "id", int, 0, required=True, lowest=0),
            "component": self._component(item, ""),
            "outputs": tuple(self._ids(item, "outputs", None)),
            "config": self._mapping(item, "config"),
            "polling_policy": policy,
            "disable_logs": self._value(item, "disable_logs", bool, False),
            "max_input_queue_depth": self._value(item, "max_input_queue_depth", int, None, lowest=0) or None,
            "max_in_flight": self._value(item, "max_in_flight", int, 1, lowest=1),
            "timed": self._value(item, "timed", bool, True),
            "copy": self._value(item, "copy", bool, False),
            "repeat": self._value(item, "repeat", int, 1, lowest=1),
        }
        found["name"] = self._value(item, "name", str, f"stage {found['id']}")
        if found["component"].startswith(APPLE):
            text = f"'{found['component']}' needs an Apple machine. Use the same stage of stages.llm_huggingface."
            self._add(item.value["component"], text)
        else:
            self._check_class(item, found["component"], ("run",))
        return found

    def _check_class(self, item: Item, component: str, needed: tuple[str, ...]) -> None:
        """Note a class that is not there, or that has none of the methods needed."""
        entry = item.value.get("component")
        if entry is None or not _COMPONENT.fullmatch(component) or component.partition(".")[0] in LIBRARIES:
            return
        try:
            if not methods_of(component, Path.cwd()) & {*needed, ANY}:
                self._add(entry, f"'{component}' has no method {' or '.join(needed)}. Write one.")
        except ValueError as error:
            self._add(entry, str(error), "unknown_name")

    def _check_model(self, config: Item) -> None:
        """Note a folder of a model that has none."""
        entry = config.value.get("model_name") or config.value.get("model")
        if entry is not None and isinstance(entry.value, dict):
            entry = entry.value.get("name")
        if entry is None or not isinstance(entry.value, str) or "depends_on_id" in config.value:
            return
        folder = Path(entry.value).expanduser()
        if folder.is_dir() and not (folder / "config.json").is_file():
            self._add(entry, f"{entry.value} has no config.json. Name the folder of a model.")

    def _note_unread(self, config: Item, stage: StageModel) -> None:
        """Note keys that a stage of ours does not read, each once."""
        words = words_of(stage.component.rpartition(".")[0], Path.cwd())
        if words is None:
            return
        for key, entry in config.items():
            if key not in words and key not in self._unread:
                self._unread.add(key)
                guess = did_you_mean(key, [word for word in words if word.isidentifier()])
                self.notes.append(f"line {entry.line}: '{stage.name}' does not read the key '{key}'.{guess}")

    def _check_references(self, config: Item, ids: set[int]) -> None:
        """Note ids in a stage's configuration that are of no stage."""
        for key, entry in config.items() if isinstance(config.value, dict) else ():
            if isinstance(entry.value, dict):
                self._check_references(entry, ids)
            elif key.endswith(REFERENCES) and type(entry.value) is int and entry.value not in ids:
                self._add(entry, f"{entry.value} is the id of no stage.{_known(entry.value, ids)}", "unknown_name")

    def _loadgen(self, item: Item) -> LoadGen:
        part = item.value.get("loadgen")
        if part is None or not self._is_mapping(part):
            if part is None:
                self._add(item, "the key 'loadgen' is missing: how queries are generated.", "missing")
            return LoadGen()
        self._pass_over(part, LOADGEN)
        component, config = self._component(part, LoadGen.component), self._mapping(part, "config")
        entry = part.value.get("config")
        for key in ("rate", "interval"):
            value = config.get(key)
            wrong = isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf")
            ignored = value == 0 and component.endswith("OfflineLoadScheduler")
            if value is not None and wrong and not ignored and entry is not None:
                self._add(entry.value[key], f"{entry.value[key].shown} is no number above 0.", "out_of_limits")
        if component.rpartition(".")[2] not in [scheduler.__name__ for scheduler in OURS]:
            self._check_class(part, component, ("generate", "arrivals"))
        return LoadGen(
            component=component,
            queue_depth=self._value(part, "queue_depth", int, QUEUE_DEPTH, lowest=1),
            max_queries=self._value(part, "max_queries", int, MAX_QUERIES, lowest=1),
            timeout=float(self._value(part, "timeout", float, TIMEOUT_S, lowest=0.1)),
            config=config,
        )

    def _check_graph(self, item: Item, items: Mapping[int, Item], found: Mapping[str, Any]) -> None:
        """Note what is wrong with how stages are connected."""
        stages: tuple[StageModel, ...] = found["stages"]
        ids = [stage.id for stage in stages]
        for id in {id for id in ids if ids.count(id) > 1}:
            self._add(items[id].value.get("id", items[id]), f"two stages have the id {id}.", "written_twice")
        for stage in stages:
            for entry, output in zip(self._entries(items[stage.id], "outputs"), stage.outputs, strict=False):
                if output not in ids:
                    self._add(entry, f"{output} is the id of no stage.{_known(output, ids)}", "unknown_name")
        if len(set(ids)) < len(ids) or not found["inputs"] or not found["outputs"]:
            return
        model = PipelineModel(slug="", **found)
        reached = model.reachable(model.inputs)
        for stage in stages:
            at = items[stage.id]
            if stage.id not in reached:
                self._add(at, f"no query reaches the stage '{stage.name}'. Add {stage.id} to `outputs` of another.")
            sources = model.sources[stage.id]
            if stage.policy == SINGLE and len(sources) > 1:
                inputs = ", ".join("the load" if source < 0 else str(source) for source in sources)
                where = at.value.get("polling_policy", at)
                text = f"{SINGLE} takes one input, and '{stage.name}' has {len(sources)} ({inputs})."
                self._add(where, f"{text} Set polling_policy to FirstSubmittedPolicy or {MERGE}.")
        if not reached & set(model.outputs):
            self._add(item.value["outputs"], "no query reaches an output.")
        for cycle in model.cycles():
            names = ", ".join(f"'{stage.name}'" for stage in cycle)
            inside = {stage.id for stage in cycle}
            leaves = any(set(model.all_outputs(stage)) - inside for stage in cycle)
            budgets = any("max_retries" in stage.config for stage in cycle)
            if not leaves:
                self._add(items[cycle[0].id], f"queries never leave the cycle of {names}.")
            elif not budgets:
                self._add(items[cycle[0].id], f"the cycle of {names} has no budget: set max_retries of a router.")
            for stage in cycle:
                if stage.max_input_queue_depth:
                    at = items[stage.id].value["max_input_queue_depth"]
                    self._add(at, f"a bounded queue inside of the cycle of {names} can stop it for ever. Remove it.")

    def _listeners(self, tree: Item) -> tuple[str, ...]:
        names = []
        for entry in self._entries(tree, "listeners"):
            if entry.value in LISTENERS:
                names.append(str(entry.value))
            else:
                guess = did_you_mean(str(entry.value), LISTENERS)
                self._add(entry, f"{entry.shown} is none of {', '.join(LISTENERS)}.{guess}", "not_a_choice")
        return tuple(names)

    def _component(self, item: Item, default: str) -> str:
        path = str(self._value(item, "component", str, default, required=not default))
        if path and not _COMPONENT.fullmatch(path):
            text = f"'{path}' is no dotted path of a class, such as stages.scripted.Scripted."
            self._add(item.value["component"], text, "wrong_form")
        return path

    def _ids(self, item: Item, key: str, known: set[int] | None, *, required: bool = False) -> list[int]:
        found = []
        for entry in self._list(item, key, required=required):
            if type(entry.value) is not int:
                self._add(entry, f"{entry.shown} is no id of a stage: a whole number.", "wrong_type")
            elif known is not None and entry.value not in known:
                self._add(entry, f"{entry.value} is the id of no stage.{_known(entry.value, known)}", "unknown_name")
            elif entry.value not in found:  # the original's routers name a stage twice
                found.append(entry.value)
        return found

    def _entries(self, item: Item, key: str) -> list[Item]:
        entry = item.value.get(key)
        return list(entry.value) if entry is not None and isinstance(entry.value, list) else []

    def _list(self, item: Item, key: str, *, required: bool = False) -> list[Item]:
        entry = item.value.get(key)
        if entry is None or entry.value is None:
            if required:
                self._add(item, f"the key '{key}' is missing.", "missing")
            return []
        if not isinstance(entry.value, list):
            self._add(entry, f"expected a list, but it is {entry.shown}.", "wrong_type")
            return []
        return list(entry.value)

    def _mapping(self, item: Item, key: str) -> dict[str, Any]:
        entry = item.value.get(key)
        if entry is None or entry.value is None or not self._is_mapping(entry):
            return {}
        return dict(entry.plain)

    def _value(
        self, item: Item, key: str, kind: type, default: Any, *, required: bool = False, lowest: float | None = None
    ) -> Any:
        entry = item.value.get(key)
        if entry is None or entry.value is None:
            if required:
                self._add(item, f"the key '{key}' is missing.", "missing")
            return default
        value = entry.value
        fits = type(value) in (int, float) if kind is float else type(value) is kind
        if kind is str and isinstance(value, (int, float)) and not isinstance(value, bool):
            value, fits = entry.text, True
        if not fits:
            self._add(entry, f"expected {_NUMBER[kind]}, but it is {entry.shown}.", "wrong_type")
            return default
        if lowest is not None and value < lowest:
            self._add(entry, f"{entry.shown} is too small: at least {lowest:g}.", "out_of_limits")
            return default
        return value

    def _is_mapping(self, item: Item) -> bool:
        if isinstance(item.value, dict):
            return True
        self._add(item, f"expected keys and values, but it is {item.shown}.", "wrong_type")
        return False

    def _pass_over(self, item: Item, known: Iterable[str]) -> None:
        names = tuple(known)
        for key, entry in item.items():
            if key not in names:
                if guess := did_you_mean(key, names):
                    self._mistakes.unknown_key(entry, names, guess)
                else:
                    self._mistakes.passed_over.setdefault(key, f"{entry.file}:{entry.line}")

    def _add(self, at: Item, text: str, code: Code = "invalid") -> None:
        self._mistakes.add(at, text, code)


def _known(id: int, ids: Iterable[int]) -> str:
    return f" Ids: {', '.join(map(str, sorted(ids)))}." if ids else ""
