"""A pipeline as a workload of a scenario: the load that its file states, and settings of its stages as factors."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from seamark.config.workload import Derived
from seamark.config.yaml_source import Item, Mistakes
from seamark.errors import UserError, did_you_mean
from seamark.model.scenario import Levels
from seamark.model.service import Setting, SettingType, Value
from seamark.patterns.table import FINITE_SETTINGS
from seamark_pipelines.config.libraries import library_of
from seamark_pipelines.config.read import read_pipelines
from seamark_pipelines.flow.schedulers import OWN, load_of
from seamark_pipelines.model.graph import FASTER, FASTER_STAGE, STAGES, PipelineFile, PipelineModel

OF_STAGES: dict[str, SettingType] = {
    "max_in_flight": "int",
    "repeat": "int",
    "timed": "bool",
    "copy": "bool",
    "disable_logs": "bool",
}
"""Keys of a stage that a scenario may vary, beside those of its `config`."""
WITH_LIBRARIES = "pipeline_models"
"""The recipe of pipelines whose stages need libraries that the base environment does not have."""
SERVICES = ("pipeline", WITH_LIBRARIES)
WARM_UP = {setting.name: setting for setting in FINITE_SETTINGS if setting.name == "warmup_items"}
"""Queries at the start that no metric counts: a pipeline's load ends with its queries, as one of items does."""
ALWAYS: dict[str, Value] = {"until_last_reply": True, "keep_events": True, "warmup_s": 0.0}


def derive(item: Item, mistakes: Mistakes) -> Derived:
    """Return the settings of the load that the file of a workload states, and those of stages that it varies."""
    loads: list[dict[str, Value]] = []
    models: list[PipelineModel] = []
    settings: dict[str, Setting] = dict(WARM_UP)
    service = None
    serialized = {key: entry.value for key, entry in item.items() if key == "serialize_queries"}
    for graph in _entries(item, "graph"):
        file = _file(graph, mistakes)
        if file is None:
            continue
        for model in _models(item, graph, file, mistakes):
            try:
                loads.append(ALWAYS | load_of(model.with_settings(serialized)))
            except ValueError as error:
                mistakes.add(graph, f"{error}.")
            settings |= _stage_settings(item, model, mistakes)
            models.append(model)
            if library_of(model, Path.cwd()) is not None:
                service = WITH_LIBRARIES
    _check_faster(item, models, loads, mistakes)
    if not loads:
        return Derived(settings=settings, service=service)
    asked = [entry.value for entry in _entries(item, "requests")] or [load["requests"] for load in loads]
    fewest = min((number for number in asked if isinstance(number, int)), default=1)
    for entry in _entries(item, "warmup_items"):
        if isinstance(entry.value, int) and entry.value >= fewest:
            mistakes.add(entry, f"{entry.value} leaves none of {fewest} queries. Lower it.", "out_of_limits")
    levels: dict[str, Levels] = {}
    for name in dict.fromkeys(name for load in loads for name in load):
        values = dict.fromkeys(load.get(name) for load in loads)
        if len(values) == 1:
            levels[name] = tuple(values)
        elif name not in item.value:
            texts = ", ".join(str(value) for value in values)
            mistakes.add(item, f"the files state different loads ({name}: {texts}). Write '{name}' here.", "conflict")
    if "scheduler" in levels:
        settings |= {setting.name: setting for setting in OWN.settings}
    return Derived(settings=settings, levels=levels, service=service)


def _entries(item: Item, key: str) -> list[Item]:
    entry = item.value.get(key)
    if entry is None:
        return []
    return list(entry.value) if isinstance(entry.value, list) else [entry]


def _file(graph: Item, mistakes: Mistakes) -> PipelineFile | None:
    if not isinstance(graph.value, str):
        return None  # noted with the other settings
    try:
        return read_pipelines(Path(graph.value))
    except UserError as error:
        mistakes.note(*(mistake for mistake in error.mistakes if mistake.code != "no_such_file"))  # noted with it
    return None


def _models(item: Item, graph: Item, file: PipelineFile, mistakes: Mistakes) -> list[PipelineModel]:
    names = [pipeline.name for pipeline in file.pipelines]
    asked = _entries(item, "pipeline")
    if not asked:
        if len(file.pipelines) > 1:
            text = f"the file has {len(names)} pipelines. Write 'pipeline:' with one of {', '.join(names)}."
            mistakes.add(graph, text, "missing")
            return []
        return list(file.pipelines)
    found = []
    for entry in asked:
        model = file.pipeline(str(entry.value))
        if model is None:
            guess = did_you_mean(str(entry.value), names)
            text = f"{entry.shown} is no pipeline of {graph.value}: {', '.join(names)}.{guess}"
            mistakes.add(entry, text, "unknown_name")
        else:
            found.append(model)
    return found


def _check_faster(
    item: Item, models: Iterable[PipelineModel], loads: Iterable[Mapping[str, Value]], mistakes: Mistakes
) -> None:
    """Note a stage to be faster that is not there, and why a workload cannot go by a clock that its pauses stop."""
    written = [key for key in (FASTER, FASTER_STAGE) if key in item.value]
    at = item.value[written[0]] if written else item
    for entry in _entries(item, FASTER_STAGE):
        for model in models:
            if model.named(str(entry.value)) is None:
                names = [stage.name for stage in model.stages]
                text = f"{entry.shown} is no stage of '{model.name}': {', '.join(names)}."
                mistakes.add(entry, f"{text}{did_you_mean(str(entry.value), names)}", "unknown_name")
    if len(written) == 1:
        mistakes.add(at, f"'{FASTER}' and '{FASTER_STAGE}' go together. Write both, or none.", "missing")
    if written and "parties" in item.path.split("."):
        text = "the pauses of one party cannot be taken off the times of others. Measure the pipeline alone."
        mistakes.add(at, text, "conflict")
    if written and any(load["pattern"] == "closed" and "scheduler" in load for load in loads):
        text = "a scheduler with `generate` goes by its own clock, which does not pause. Write one with `arrivals`."
        mistakes.add(at, text, "conflict")
    if written and any(entry.value != 1 for entry in _entries(item, "shards")):
        mistakes.add(item.value["shards"], f"several shards have no common pauses: '{FASTER}' needs one.", "conflict")


def _stage_settings(item: Item, model: PipelineModel, mistakes: Mistakes) -> dict[str, Setting]:
    """Return a setting for each key `stages.ID...` of a workload."""
    found = {}
    for key, entry in item.items():
        begin, _, rest = key.partition(".")
        if begin != STAGES or not rest:
            continue
        number, _, name = rest.partition(".")
        ids = [str(stage.id) for stage in model.stages]
        if number not in ids:
            text = f"'{number}' is the id of no stage of '{model.name}': {', '.join(ids)}."
            mistakes.add(entry, text, "unknown_name")
        elif name not in OF_STAGES and not name.startswith("config."):
            names = (*OF_STAGES, "config.KEY")
            text = f"a scenario cannot vary '{name}' of a stage. Allowed: {', '.join(names)}."
            mistakes.add(entry, f"{text}{did_you_mean(name, OF_STAGES)}", "unknown_key")
        kind = OF_STAGES.get(name) or _type_of(value.value for value in _entries(item, key))
        found[key] = Setting(name=key, type=kind, role="workload", help=f"Setting of the stage {number}.")
    return found


def _type_of(values: Iterable[object]) -> SettingType:
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return "bool"
    if kinds == {int}:
        return "int"
    return "float" if kinds <= {int, float} else "str"
