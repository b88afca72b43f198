"""Check of a workload that another tool loads: what that tool cannot send is a mistake before anything runs."""

from collections.abc import Iterator

from seamark.config.levels import show
from seamark.config.yaml_source import Item, Mistakes
from seamark.model.harness import HARNESS, HARNESSES
from seamark.model.load_profile import AUTO, LoadProfile
from seamark.model.scenario import Workload
from seamark.model.service import Service, Value
from seamark.patterns.table import load_settings_of

OF_A_CONNECTION = ("tls",)
"""Settings of a deployment that the load has to follow as well."""


def check_harness(item: Item, workload: Workload, service: Service, mistakes: Mistakes) -> None:
    """Note each level that a tool of the setting `harness` cannot send, and a load of which it would not know the
    end."""
    tools = [str(level) for level in workload.every_level(HARNESS) if level in HARNESSES]
    for name in dict.fromkeys(tools):
        for setting in (*service.settings, *load_settings_of(service)):
            if setting.role != "workload" and setting.name not in OF_A_CONNECTION:
                continue
            allowed = HARNESSES[name].reads.get(setting.name, (None, setting.default))
            for at, level in _levels(item, workload, setting.name):
                if setting.name == "warmup_s" and level == AUTO:
                    text = f"{name} needs a number of seconds: a start-up is detected in Seamark's own loads alone."
                    mistakes.add(at, text)
                elif allowed is not None and level not in allowed:
                    _note(at, name, level, allowed, mistakes)
        if workload.search is not None:
            text = f"{name} is not searched with. Write the rates as levels, or set 'harness' to seamark."
            mistakes.add(item.value["search"], text, "conflict")
        closed = "closed" in workload.every_level("pattern", LoadProfile.pattern)
        if "requests" in HARNESSES[name].reads and closed and workload.levels.get("requests", (None,)) == (None,):
            text = f"{name} ends a closed loop after a number of requests. Add a line such as 'requests: 200'."
            mistakes.add(item.value.get(HARNESS, item), text, "missing")


def _note(at: Item, tool: str, level: Value, allowed: tuple[Value, ...], mistakes: Mistakes) -> None:
    """Note a level that a tool cannot send, with what it can."""
    possible = ", ".join(show(value) for value in allowed if value is not None)
    remedy = f"It can send: {possible}." if possible else "Remove it."
    text = f"{tool} cannot send {show(level)}. {remedy} Or write a workload without 'harness' for it."
    mistakes.add(at, text, "not_a_choice")


def _levels(item: Item, workload: Workload, name: str) -> Iterator[tuple[Item, Value]]:
    """Yield each level of a setting, with its place."""
    written = item.value.get(name, item)
    places = written.value if isinstance(written.value, list) else []
    for index, level in enumerate(workload.levels.get(name, ())):
        yield (places[index] if index < len(places) else written), level
    for entry in workload.include:
        if name in entry:
            yield item.value.get("include", item), entry[name]
