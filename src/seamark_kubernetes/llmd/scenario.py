"""An experiment of llm-d-benchmark as a scenario of the service `vllm`, in text. Opens no file."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from seamark.config.decode import WRONG, decode
from seamark.config.levels import level
from seamark.config.yaml_source import Item, Mistakes, value_of
from seamark.model.service import Setting
from seamark_kubernetes.llmd.experiment import Experiment, Treatment, part

SERVICE = "vllm"
KEYS = {
    "model": "model model.name model.huggingfaceid deploy_model_list",
    "tensor_parallel": "decode.parallelism.tensor standalone.parallelism.tensor tensor_parallelism"
    " vllm_common_tensor_parallelism vllm_modelservice_decode_tensor_parallelism",
    "max_model_len": "model.maxmodellen max_model_len vllm_common_max_model_len",
    "max_num_seqs": "max_num_seqs vllm_common_max_num_seq",
    "gpu_memory_utilization": "model.gpumemoryutilization vllm_common_accelerator_mem_util",
    "enable_prefix_caching": "standalone.vllm.enableprefixcaching",
    "enforce_eager": "vllmcommon.flags.enforceeager",
    "prefix_len": "system_prompt_len data.shared_prefix.system_prompt_len random_prefix_len prefix_tokens",
    "prefix_groups": "num_groups data.shared_prefix.num_groups",
    "prompt_len": "question_len data.shared_prefix.question_len data.input_distribution.mean random_input_len"
    " prompt_tokens data.prompt_tokens",
    "gen_tokens": "output_len data.shared_prefix.output_len data.output_distribution.mean random_output_len"
    " output_tokens data.output_tokens",
    "pattern": "load.type",
    "concurrency": "max_concurrency load.stages.0.concurrency_level load.stages.0.concurrent_sessions",
    "rate_rps": "request_rate load.stages.0.rate load.stages.0.session_rate",
    "requests": "prompts num_prompts load.stages.0.num_requests",
    "duration_s": "load.stages.0.duration max_seconds",
    "timeout_s": "load.request_timeout",
    "stream": "streaming api.streaming",
    "endpoint": "api.type request_type",
    "ignore_eos": "ignore_eos server.ignore_eos",
}
"""Setting -> keys of experiments with its value, in small letters, with _ for - and without LLMDBENCH_ before it."""
SETTINGS = {key: setting for setting, keys in KEYS.items() for key in keys.split()}
WORDS = {"completion": "completions", "text_completions": "completions", "concurrent": "closed"}
"""Words of experiments -> levels."""
TOP = {
    "treatment_max_attempts": (101, "max_retries: {}", -1),
    "max_parallel_treatments": (1000, "order: {{window: {}}}", 0),
}
"""Key with a whole number -> its largest one, and the line of a scenario with that number and a difference."""
PARTS = (
    *("experiment", "design", "setup", "run", "treatments", "groups", "constants", "reset_caches"),
    *("validate_failures", *TOP),
)
WHY = {
    "treatment_stop_on_error": "a failed trial does not end the others.",
    "harness": "the load is Seamark's own.",
    "nop": "the harness nop sends no load, and a trial has one.",
    "profile": "config/mixes has none of this name. What it sets, and this file does not, has the recipe's default.",
    "rate": "users or requests/s, by the profile. Write `concurrency`, or `pattern` and `rate_rps`.",
    "groups": "the members load one server at the same time. Write a workload with `parties`.",
}
"""Why a key is not taken; for all others the recipe has no setting."""
CONNECTIONS, LIMIT_S = 256, 3600.0
"""Connections of an open loop, and the time limit of a number of requests: experiments do not have them."""

Values = dict[str, Any]
"""Setting -> level."""
Profiles = Callable[[str], Mapping[str, Any] | None]
"""Returns the classes of a mix by its name, None without one."""


def scenario_of(
    experiment: Experiment, settings: Mapping[str, Setting], profiles: Profiles, mistakes: Mistakes
) -> tuple[str, list[str]]:
    """Return a scenario of a recipe with these settings, and a line for each part of the experiment that it lacks.

    Raises UserError with all mistakes, also where no key is a setting.
    """
    root, notes = experiment.root, dict[str, str]()
    about = part(root, "experiment")
    for key, item in (*root.items(), *about.items()):
        known = key == "profile" and _profile(item, profiles)
        if key not in (*PARTS, "name", "description") and item.value is not False and not known:
            _note(notes, key, item)
    for group in experiment.together:
        _note(notes, "groups", group)
    kinds = [
        [(treatment.name, _values(treatment, settings, profiles, notes, mistakes)) for treatment in kind]
        for kind in (experiment.setup, experiment.run)
    ]
    usual = next((item for item in (part(about, "profile"), part(root, "profile")) if item.text), root)
    own = [_profile(treatment.levels.get("profile", usual), profiles) for treatment in experiment.run]
    kinds[1] = [(name, base | values) for (name, values), base in zip(kinds[1], own, strict=True)]
    rows = [(f"{one} {other}".strip(), {**first, **second}) for (one, first), (other, second) in product(*kinds)]
    if not any(row for _, row in rows) and not mistakes.noted:
        text = f"nothing can be taken: no key of a treatment is a setting of the service {SERVICE}."
        mistakes.add(root, text, "missing")
    if "reset_caches" in root.value and decode(root.value["reset_caches"], bool, mistakes) is True:
        rows = [(label, row | {"caches": "reset"}) for label, row in rows]
    name = re.sub(r"[^A-Za-z0-9._]+", "-", part(about, "name").text or Path(root.file).stem).strip("-._")[:64]
    top = [f"scenario: {_flow(name or 'experiment')}", "repetitions: 1  # as there; several give intervals"]
    for key, (most, line, more) in TOP.items():
        if key in root.value:
            count = decode(root.value[key], int, mistakes, limits={"minimum": 1, "maximum": most})
            top.append(line.format(count if count is WRONG else count + more))
    if text := part(about, "description").text or "":
        top.append(f"metadata: {_flow({'notes': _one_line(text)})}")
    mistakes.raise_any()
    added = _complete([row for _, row in rows], settings)
    alike = {tuple(row.get(name, settings[name].default) for name in settings): (label, row) for label, row in rows}
    if len(alike) < len(rows):
        text = f"{len(rows) - len(alike)} of {len(rows)} treatments differ from others by nothing that is taken."
        notes[""] = f"{root.where}: {text}"
    workload = _workload([*alike.values()], settings, added)
    workload += ["slos: [error_rate <= 0]"] if part(root, "validate_failures").value is True else []
    head = [f"From {root.file}, an experiment of llm-d-benchmark.", *(["Not taken:"] if notes else [])]
    lines = [f"# {_one_line(line)}" for line in (*head, *notes.values())]
    lines += [*top, "workload:", *(f"  {line}" for line in workload)]
    return "\n".join([*lines, ""]), list(notes.values())


def _note(notes: dict[str, str], key: str, item: Item) -> None:
    """Note a key that is not taken, at its first place."""
    why = WHY.get("nop" if item.text == "nop" else key, f"the service {SERVICE} has no setting for it.")
    notes.setdefault(f"{key} {item.text}" if key in ("profile", "groups") else key, f"{item.where}: {why}")


def _values(
    treatment: Treatment,
    settings: Mapping[str, Setting],
    profiles: Profiles,
    notes: dict[str, str],
    mistakes: Mistakes,
) -> Values:
    """Return the values of a treatment, after noting keys that are no settings, and mistakes."""
    values: Values = {}
    for key, item in treatment.levels.items():
        plain = key.lower().replace("-", "_").removeprefix("llmdbench_")
        name = SETTINGS.get(plain, "")
        if key == "profile" and _profile(item, profiles):
            continue
        if name not in settings:
            _note(notes, key, item)
        elif (value := _level(item, settings[name], mistakes)) is not WRONG:
            if values.setdefault(name, value) != value:
                text = f"'{name}' would be {value} here, and {values[name]} by another key. Remove one."
                mistakes.add(item, text, "conflict")
            if name == "rate_rps":  # inference-perf sends at equal distances, vllm bench at random
                values.setdefault("pattern", "constant" if plain.startswith("load.") else "poisson")
    return values if "rate_rps" in values else {name: values[name] for name in values if name != "pattern"}


def _profile(item: Item, profiles: Profiles) -> Values:
    """Return the settings of a profile, which treatments override: those of its class, or a mix of several; {} for
    one that is not known."""
    name = (item.text or "").removesuffix(".in").removesuffix(".yaml")
    classes = dict(profiles(name) or {}) if name else {}
    if len(classes) != 1:
        return {"mix": name} if classes else {}
    [values] = (dict(settings) for settings in classes.values())
    values.pop("weight", None)
    if "prefix_len" in values and "prompt_len" in values:  # of experiments, without the prefix
        values["prompt_len"] -= values["prefix_len"]
    return values


def _level(item: Item, setting: Setting, mistakes: Mistakes) -> Any:
    """Return a level in the setting's type, or WRONG; texts of old experiments, and in quotes, may be numbers."""
    value: Any = item.value
    if setting.type == "str" and item.text:
        value = WORDS.get(item.text, item.text)
    elif isinstance(value, str):
        with suppress(ValueError):
            value = value_of(value)
    return level(replace(item, value=value), setting, mistakes)


def _workload(rows: Sequence[tuple[str, Values]], settings: Mapping[str, Setting], added: Sequence[str]) -> list[str]:
    """Return the lines of a workload: factors with levels if the treatments are a product, else each treatment."""
    names = [name for name in settings if any(name in row for _, row in rows)]
    levels = {name: list(dict.fromkeys(row[name] for _, row in rows if name in row)) for name in names}
    everywhere = {name for name in names if all(name in row for _, row in rows)}
    varied = [name for name in names if name not in everywhere or len(levels[name]) > 1]
    lines = [f"service: {SERVICE}"]
    if "model" not in names:
        lines.append(f"# model: NAME  # not in the experiment; else {settings['model'].default}")
    if max(levels.get("tensor_parallel", [1])) > 1:
        lines.append("# on GPUs write above `workload`: resources, with as many gpus as tensor_parallel")
    if "prefix_len" in names:
        lines.append("# prompt_len includes prefix_len; prefix_groups is the number of prefixes")
    lines += [f"# added: {', '.join(added)}"] if added else []
    lines += [f"{name}: {_flow(levels[name][0])}" for name in names if name not in varied]
    if everywhere.issuperset(varied) and math.prod(len(levels[name]) for name in varied) == len(rows):
        return lines + [f"{name}: {_flow(levels[name])}" for name in varied]
    lines.append("include:")
    for label, row in rows:
        given = {name: row[name] for name in varied if name in row}
        given = given or {name: settings[name].default for name in varied if settings[name].default is not None}
        lines.append(f"  - {_flow(given)}  # {_one_line(label)}")
    return lines


def _complete(rows: Sequence[Values], settings: Mapping[str, Setting]) -> list[str]:
    """Add to treatments what a scenario needs and an experiment does not say; return the names of the settings."""
    added: Values = {}
    usual: Values = {name: setting.default for name, setting in settings.items()}
    for row in rows:
        if "prefix_len" in row:
            row["prompt_len"] = row["prefix_len"] + row.get("prompt_len", usual["prompt_len"])
        more: Values = {"concurrency": CONNECTIONS} if "rate_rps" in row else {}
        more |= {"until_last_reply": True, "duration_s": LIMIT_S} if "requests" in row else {}
        more |= {"dev_mode": True} if "caches" in row else {}  # as upstream starts vLLM, unless told otherwise
        more = {name: value for name, value in more.items() if name not in row}
        row |= more
        added |= more
    lengths = [sum((usual | row)[name] for name in ("prompt_len", "gen_tokens")) for row in rows]
    without = [row for row in rows if "max_model_len" not in row]
    if without and max(lengths) > usual["max_model_len"]:
        for row in without:
            added["max_model_len"] = row["max_model_len"] = max(lengths)
    return list(added)


def _flow(value: Any) -> str:
    """Return a value as YAML in one line."""
    text = yaml.safe_dump([value], default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf)
    return str(text).strip()[1:-1]


def _one_line(text: str) -> str:
    """Return a text without line breaks and other characters that end or break a comment."""
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())
