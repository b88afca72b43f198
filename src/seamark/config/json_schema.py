"""JSON Schemas of scenario, service and site for editors and CI, generated from the dataclasses and the recipes.

`python -m seamark.config.json_schema` writes workflow/schemas. A schema covers each key by itself; rules between keys
(load profiles, conditions, site limits) are checked when the file is read.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from seamark.config.extends import SCHEMA_VERSION, SCHEMA_VERSION_KEY
from seamark.config.forms.table import schema_of_structure
from seamark.config.parties import NAME as PARTY_NAME
from seamark.config.parties import NOT_OF_A_PARTY, OF_A_SERVER, WORDS
from seamark.config.read import read_services
from seamark.config.scenario import COUNTS, TEXT_KEYS
from seamark.config.workload import NAME
from seamark.dispatch.order import COUNTED, FORMS, UNROLL, Groups
from seamark.dispatch.placement import PLACEMENTS
from seamark.model.annotations import hints, is_required, keys_of, limits_of, shape_of
from seamark.model.dotted import DOTTED
from seamark.model.parties import GPU_SHARING, KEEP_BUSY, PLACEMENT, SETS, SHARING_TEXT, Mps
from seamark.model.scenario import (
    RESOURCE_SETTINGS,
    Artifacts,
    CapacityCheck,
    Comparing,
    Metadata,
    Notify,
    Party,
    Prediction,
    Restarts,
    Scenario,
    Search,
    Workload,
)
from seamark.model.service import Service, Setting
from seamark.model.site import Site
from seamark.patterns.table import LOAD_SETTINGS, load_settings_of

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
FORM: Schema = {"const": SCHEMA_VERSION, "description": "Version of the form of this file; without it 1."}
OF_PARTIES = (PLACEMENT, GPU_SHARING, KEEP_BUSY)
NAMES: Schema = {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True}
KEYWORDS = {
    "minimum": "minimum",
    "above": "exclusiveMinimum",
    "maximum": "maximum",
    "below": "exclusiveMaximum",
    "help": "description",
}
"""Limit of a field -> keyword of JSON Schema."""
PLAIN: dict[Any, Schema] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
}


def schemas(services: Mapping[str, Service]) -> dict[str, Schema]:
    """Return every published schema by its file name."""
    published = {
        "scenario.schema.json": scenario_schema(services),
        "service.schema.json": {"$schema": DIALECT, "title": "A Seamark service recipe", **service_schema()},
        "site.schema.json": {"$schema": DIALECT, "title": "A Seamark site", **schema_of(Site)},
    }
    for schema in published.values():
        schema["properties"][SCHEMA_VERSION_KEY] = FORM
    return published


def schema_of(form: Any) -> Schema:
    """Return the schema of an annotation: a dataclass, tuple, Mapping, Literal, union, or plain type."""
    kind, parts = shape_of(form)
    if kind == "dataclass":
        return _object(form)
    if kind == "union":
        return {"anyOf": [schema_of(option) for option in parts]}
    if kind == "literal":
        return {"enum": list(parts)}
    if kind == "list":
        return {"type": "array", "items": schema_of(parts[1])}
    if kind == "mapping":
        return {"type": "object", "additionalProperties": schema_of(parts[0])}
    return dict(PLAIN[form])


def _limited(form: Any, name: str, schema: Schema, default: Any = None) -> Schema:
    """Return the schema of a field with its limits, its default and its text."""
    limits = limits_of(form)[name]
    known = {key: limits[limit] for limit, key in KEYWORDS.items() if limit in limits}
    schema = {"type": "array", "minItems": 1} | schema if "empty" in limits else schema
    known |= {"pattern": f"^{limits['pattern']}$"} if "pattern" in limits else {}
    text = {"description": known.pop("description")} if "description" in known else {}
    return schema | known | ({} if default is None else {"default": default}) | text


def service_schema() -> Schema:
    """Return the schema of a recipe: as the dataclass, but settings are a mapping from their names.

    A recipe that extends another one may have parts of its mappings, which are merged, and null for a setting.
    """
    schema = _object(Service)
    setting = _object(Setting)
    del setting["properties"]["name"]
    setting["required"].remove("name")
    left_out: Schema = {"anyOf": [{"type": "null"}, setting]}
    schema["properties"]["settings"] = {"type": "object", "additionalProperties": left_out}
    paths: Schema = {"type": "string", "minLength": 1}
    schema["properties"]["extends"] = {"anyOf": [paths, {"type": "array", "items": paths}]}
    whole: Schema = {"required": schema.pop("required"), "properties": {}}
    whole["properties"]["settings"] = {
        "additionalProperties": {"type": "object", "required": setting.pop("required")}
    }
    for name in ("server", "container", "gpu_memory"):
        needed = [option.pop("required") for option in schema["properties"][name]["anyOf"] if "required" in option]
        whole["properties"][name] = {"anyOf": [{"type": "null"}, *({"required": keys} for keys in needed)]}
    schema["anyOf"] = [whole, {"required": ["name", "extends"]}]
    return schema


def scenario_schema(services: Mapping[str, Service]) -> Schema:
    """Return the schema of a scenario, with the settings of all known recipes."""
    name = {"type": "string", "pattern": f"^{NAME.pattern}$"}
    path = {"type": "string", "minLength": 1}
    load = {setting.name: _ref("load", setting) for setting in LOAD_SETTINGS}
    every = [setting.name for service in services.values() for setting in service.settings]
    artifacts = _object(Artifacts)
    artifacts["properties"]["container"] = {"anyOf": [{"type": "string", "pattern": r"\.sif$"}, {"type": "null"}]}
    resources = {setting.name: _ref("resources", setting) for setting in RESOURCE_SETTINGS}
    return {
        "$schema": DIALECT,
        "title": "A Seamark scenario",
        "type": "object",
        "additionalProperties": False,
        "required": ["scenario"],
        "anyOf": [{"required": ["workload"]}, {"required": ["workloads"]}, {"required": ["extends"]}],
        "not": {"required": ["workload", "workloads"]},
        "properties": {
            "scenario": name | {"description": "Name of the scenario and of its folder in results."},
            "extends": {
                "anyOf": [path, {"type": "array", "items": path}],
                "description": "Scenario files, relative to this one, that this one is merged over.",
            },
            **{key: _limited(Scenario, key, PLAIN[str]) for key in TEXT_KEYS},
            **{key: _limited(Scenario, key, PLAIN[int]) for key in COUNTS},
            "restarts": {"enum": list(get_args(Restarts)), "description": "Whether every block starts servers anew."},
            "capacity_check": {
                "enum": [*get_args(CapacityCheck), False],  # YAML 1.1 reads `off` as false
                "default": "stop",
                "description": "Whether a server that exceeds the memory of its GPUs stops a run or is noted.",
            },
            "order": _order(),
            "notify": _object(Notify, limits=True)
            | {"description": "A command that runs at the end of a run, or at its first failed trial."},
            "resources": {"type": "object", "additionalProperties": False, "properties": resources},
            "defaults": {
                "type": "object",
                "additionalProperties": False,
                "properties": dict.fromkeys(every, True) | load,
                "description": "Settings of every workload that knows them and does not set them itself.",
            },
            "workload": {"$ref": "#/$defs/workload"},
            "workloads": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/workload"}},
            "artifacts": artifacts,
            "metrics": {
                "type": "array",
                "items": {"type": "string", "pattern": f"^{DOTTED.pattern}$"},
                "description": "Metrics of your own, as module:name; the module is found in the study's folder.",
            },
            "checks": {
                "type": "array",
                "items": {"type": "string", "pattern": f"^{DOTTED.pattern}$"},
                "description": "Checks of your own, functions as module:name of a module in the study's folder.",
            },
            "binds": {"type": "array", "items": {"type": "string", "pattern": "^[^:]+:/[^:]*(:(ro|rw))?$"}},
            "compare": _comparing(),
            "prediction": schema_of(Prediction)
            | {"description": "What a model predicted of the trials; `bench capacity --verify` writes it."},
            "metadata": _object(Metadata, limits=True),
        },
        "$defs": {
            "workload": {
                "type": "object",
                "if": {"required": ["parties"]},
                "then": {"$ref": "#/$defs/workload_with_parties"},
                "else": {
                    "if": {"properties": {"service": {"type": "array"}}, "required": ["service"]},
                    "then": _compared_services(services),
                    "else": _by_service("workload", services),
                },
            },
            "workload_with_parties": _workload_with_parties(services),
            "party": _by_service("party", services),
            **{f"workload_{service}": _workload(services[service]) for service in sorted(services)},
            **{f"party_{service}": _party(services[service]) for service in sorted(services)},
            "level": {
                group: {s.name: level_schema(s) for s in settings} for group, settings in _groups(services).items()
            },
            "levels": {
                group: {s.name: _levels_schema(group, s) for s in settings}
                for group, settings in _groups(services).items()
            },
        },
    }


def _order() -> Schema:
    """Return the schema of an order: a word or a call such as barrier(4), or a mapping."""
    count = {"type": "integer", "minimum": 1}
    counted: list[Schema] = [
        {"type": "object", "additionalProperties": False, "required": [name], "properties": {name: count}}
        for name in COUNTED
    ]
    unroll: Schema = {
        "type": "object",
        "additionalProperties": False,
        "required": [UNROLL],
        "properties": {
            UNROLL: {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
            "then": {"anyOf": [{"type": "string"}, {"type": "object"}]},
            "groups": {"enum": list(get_args(Groups))},
        },
    }
    about = f"Which deployment begins next: {', '.join(FORMS)}."
    return {"anyOf": [{"type": "string"}, *counted, unroll], "description": about}


def _workload(service: Service) -> Schema:
    load = "load" if service.load == "requests" else service.name
    settings = [
        *((service.name, setting) for setting in service.settings),
        *((load, setting) for setting in load_settings_of(service)),
    ]
    treatable = [*settings, *(("resources", setting) for setting in RESOURCE_SETTINGS)]
    one = {setting.name: _ref(group, setting, "level") for group, setting in treatable}
    partial = {"type": "object", "minProperties": 1, "additionalProperties": False, "properties": one}
    texts = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    return {
        "type": "object",
        "description": service.summary,
        "additionalProperties": False,
        "required": ["service"],
        "properties": {
            "name": {"type": "string", "pattern": f"^{NAME.pattern}$", "description": "Default: the service's name."},
            "component": {"const": service.component},
            "service": {"const": service.name},
            **{setting.name: _ref(group, setting) for group, setting in settings},
            "include": {"type": "array", "items": partial, "description": "Treatments to add to the matrix."},
            "exclude": {"type": "array", "items": partial, "description": "Treatments to drop: all that match."},
            "where": texts | {"description": "Conditions that each treatment keeps: batch <= concurrency"},
            "search": _search(),
            "fresh_server": _limited(Workload, "fresh_server", PLAIN[bool]),
            "profile": texts | {"description": "Names of mixes, or of traces."},
            "slos": texts | {"description": "Objectives in the metric's own unit: latency_p99_s <= 0.2"},
        },
    }


def _by_service(kind: str, services: Mapping[str, Service]) -> Schema:
    """Return the schema of a workload or party, whose `service` says which settings it has."""
    return {
        "type": "object",
        "required": ["service"],
        "properties": {"service": {"enum": sorted(services)}},
        "allOf": [
            {
                "if": {"properties": {"service": {"const": service}}, "required": ["service"]},
                "then": {"$ref": f"#/$defs/{kind}_{service}"},
            }
            for service in sorted(services)
        ],
    }


def _compared_services(services: Mapping[str, Service]) -> Schema:
    """Return the schema of a workload of several services under one load; what each of them knows is checked when
    the file is read."""
    names: Schema = {"enum": sorted(services)}
    return {
        "properties": {
            "service": {"type": "array", "items": names, "minItems": 2, "uniqueItems": True},
            "per_service": {
                "type": "object",
                "propertyNames": names,
                "additionalProperties": {"type": "object"},
                "description": "Settings of one of the services, by its name. A list has levels of its own.",
            },
        },
    }


def _workload_with_parties(services: Mapping[str, Service]) -> Schema:
    """Return the schema of a workload with several services: what stands beside `parties` is shared by them."""
    groups: dict[str, dict[str, Setting]] = {}
    for name, service in sorted(services.items()):
        for setting in load_settings_of(service):
            groups.setdefault(setting.name, {})["load" if service.load == "requests" else name] = setting
    shared = {
        name: {"anyOf": [_ref(group, variant) for group, variant in variants.items()]}
        for name, variants in groups.items()
    }
    one = {"type": "string", "pattern": f"^{PARTY_NAME.pattern}$"}
    several = {"type": "array", "items": one, "minItems": 1, "uniqueItems": True}
    sets = {"type": "array", "items": {"anyOf": [one, several]}, "minItems": 1}
    return {
        "type": "object",
        "description": "Several services under load at the same time, alone and together",
        "additionalProperties": False,
        "required": ["parties"],
        "properties": {
            "name": {"type": "string", "pattern": f"^{NAME.pattern}$", "description": "Default: parties."},
            "parties": {
                "type": "object",
                "minProperties": 2,
                "propertyNames": one,
                "additionalProperties": {"$ref": "#/$defs/party"},
                "description": "Services with their settings and loads, by the names of the parties.",
            },
            SETS.name: {"anyOf": [{"enum": list(WORDS)}, sets], "description": SETS.help},
            **{setting.name: _ref("parties", setting) for setting in OF_PARTIES},
            "fresh_server": _limited(Workload, "fresh_server", PLAIN[bool]),
            **shared,
        },
    }


def _party(service: Service) -> Schema:
    schema = _workload(service)
    own = {name: part for name, part in schema["properties"].items() if name not in NOT_OF_A_PARTY}
    of_server = {key: _limited(Party, key, schema_of(hints(Party)[key]), getattr(Party, key)) for key in OF_A_SERVER}
    return schema | {"properties": own | of_server}


def level_schema(setting: Setting) -> Schema:
    """Return the schema of one value of a setting."""
    if setting.type == "structure":
        return schema_of_structure(setting.name)
    schema = dict(PLAIN[{"int": int, "float": float, "str": str, "bool": bool}[setting.type]])
    for key, value in (("minimum", setting.minimum), ("maximum", setting.maximum), ("default", setting.default)):
        if value is not None:
            schema[key] = value
    if setting is PLACEMENT:
        own = {"type": "string", "pattern": f"^{DOTTED.pattern}$", "description": "A function of your own."}
        return {"anyOf": [schema | {"enum": list(PLACEMENTS)}, own]}
    if setting is GPU_SHARING:
        ways = {"mps": _object(Mps, limits=True, defaults=True), "mig": {"type": "string"}}
        mappings = [
            {"type": "object", "additionalProperties": False, "required": [way], "properties": {way: form}}
            for way, form in ways.items()
        ]
        return {"anyOf": [{"type": "string", "pattern": f"^({SHARING_TEXT.pattern})$"}, *mappings, {"type": "null"}]}
    if setting.name == "pattern":
        own = {"type": "string", "pattern": f"^{DOTTED.pattern}$", "description": "A pattern of your own."}
        return {"anyOf": [schema | {"enum": list(setting.allowed or ())}, own]}
    if setting.allowed is not None:
        schema["enum"] = list(setting.allowed)
    if setting.type == "str":
        schema["minLength"] = 1
    if setting.object:
        schema = {"anyOf": [schema, {"type": "object"}]}
    if setting.words:
        schema = {"anyOf": [schema, {"enum": list(setting.words)}]}
    return schema if setting.default is not None else {"anyOf": [schema, {"type": "null"}]}


def _groups(services: Mapping[str, Service]) -> dict[str, tuple[Setting, ...]]:
    own = {
        name: (*service.settings, *(load_settings_of(service) if service.load != "requests" else ()))
        for name, service in sorted(services.items())
    }
    return {"load": LOAD_SETTINGS, "resources": RESOURCE_SETTINGS, "parties": OF_PARTIES, **own}


def _ref(group: str, setting: Setting, kind: str = "levels") -> Schema:
    return {"$ref": f"#/$defs/{kind}/{group}/{setting.name}"}


def _levels_schema(group: str, setting: Setting) -> Schema:
    """Return the schema of a setting in a scenario: one value, or a list of different levels."""
    one = _ref(group, setting, "level")
    many = {"type": "array", "items": one, "minItems": 1, "uniqueItems": True}
    unit = f" [{setting.unit}]" if setting.unit else ""
    return {"anyOf": [one, many], "description": f"{setting.help.strip()}{unit} ({setting.role} setting)"}


def _object(form: type, *, limits: bool = False, defaults: bool = False) -> Schema:
    """Return the schema of a dataclass, on request with limits, texts and defaults of its fields."""
    properties = {key: schema_of(hints(form)[member.name]) for key, member in keys_of(form).items()}
    for key, member in keys_of(form).items() if limits else ():
        default = member.default if defaults and not is_required(member) else None
        properties[key] = _limited(form, member.name, properties[key], default)
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [key for key, member in keys_of(form).items() if is_required(member)],
        "properties": properties,
    }


def _search() -> Schema:
    """Return the schema of a search, whose range is that of the setting that is searched."""
    schema = _object(Search, limits=True, defaults=True)
    for key in ("from", "to"):
        schema["properties"][key]["exclusiveMinimum"] = 0
    return {"type": "object", "description": "Search for the largest load that meets the objectives."} | schema


def _comparing() -> Schema:
    forms: dict[str, Schema] = {
        "baseline": {"type": "object"},
        "margin": PLAIN[float],
        "quality_margin": PLAIN[float],
        "carry_over": PLAIN[bool],
    }
    defaults = {"margin": Comparing.margin}
    return {
        "type": "object",
        "additionalProperties": False,
        "description": "What `bench compare` and the report compare.",
        "properties": {
            name: _limited(Comparing, name, forms.get(name, NAMES), defaults.get(name)) for name in hints(Comparing)
        },
    }


def as_text(schema: Schema) -> str:
    """Return a schema as the text of its file."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Write the schemas of the recipes in one folder (config/services) to another (workflow/schemas)."""
    recipes, target = arguments or ["config/services", "workflow/schemas"]
    Path(target).mkdir(parents=True, exist_ok=True)
    for name, schema in schemas(read_services(Path(recipes))).items():
        (Path(target) / name).write_text(as_text(schema), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
