"""Checks of a recipe: ports, parts, names in templates, and no placeholder in the text of a program.

A placeholder in the text after `sh -c` would be read as program: a folder called `it's` ends a quotation, and
`$(...)` runs.
"""

import re
import string
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from seamark.config.decode import SMALL_NAME
from seamark.config.yaml_source import Item, Mistakes
from seamark.errors import did_you_mean
from seamark.model.annotations import limits_of
from seamark.model.failure_categories import FAILURE_CATEGORIES
from seamark.model.results.replicas import REPLICA_SERIES
from seamark.model.service import OPTIONS, URLS, GpuMemory, Health, Part, ResetCall, Server, Service

PLACES = (
    *("ports", "host", "data", "settings", "switches", "words", "user", "node", "nodes", "addresses", "urls"),
    *("number", "study", "options", "values"),
    *("env", "python", "package", "site_packages", "libdir", "python_version"),
)
"""Names allowed in the templates of a server; services/ replaces them."""

ALONE = {"urls": URLS, "options": OPTIONS}
"""Names that stand for several words -> the form of the word that they are."""
MAIN = "server"
"""The name of the server's own process among its parts."""
SHELLS = ("sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "fish")
TEXT_LETTERS = {**dict.fromkeys(SHELLS, "c"), "python": "c", **dict.fromkeys(("perl", "ruby", "node"), "e")}
"""Interpreter, without its version -> letter of the option that takes the text of a program."""
FIRST_ARGUMENT = {"python": "sys.argv[1]", "perl": "$ARGV[0]", "ruby": "ARGV[0]", "node": "process.argv[1]"}
"""Interpreter -> expression for the first argument; in a shell "$1"."""
TAKES_A_WORD = ("-o", "+o", "-O", "+O", "--rcfile", "--init-file", "-W", "-X")
"""Options of interpreters that take a value."""
PLACEHOLDER = re.compile(r"\{(\w+)[^{}]*\}")


def check_service(tree: Item, service: Service, mistakes: Mistakes) -> None:
    """Note every inconsistency of a decoded recipe."""
    check_program_texts(tree, mistakes)
    if service.virtual_clock and (service.load != "program" or service.server is not None):
        why = "'simulated' is for a program without a server. Set 'load: program' and 'server: null', or remove it."
        mistakes.add(tree.value["origin"], why)
    if service.judge is not None and service.load == "program":
        mistakes.add(tree.value["judge"], "is for loads with replies, and a program has none. Remove it.")
    for name, quality in service.qualities.items():
        low, high = [*quality.range, None, None][:2]
        if len(quality.range) != 2 or (low is not None and high is not None and low >= high):
            at = tree.value["qualities"].value[name].value["range"]
            mistakes.add(at, "needs the least and the greatest value: [0, 1]; null is an open end.")
    for name in service.failures:
        at = tree.value["failures"].value[name]
        if name in FAILURE_CATEGORIES:
            mistakes.add(at, f"there is a category '{name}' already. Choose another name.")
        elif not SMALL_NAME.fullmatch(name):
            mistakes.add(at, f"'{name}' cannot be a category: use small letters, digits and '_', at most 64.")
    if service.gpu_memory is not None:
        _check_named(tree.value["gpu_memory"], service.gpu_memory, service, mistakes)
        _check_tokens(tree.value["gpu_memory"], service.gpu_memory, mistakes)
    _check_named(tree, service, service, mistakes)
    for name in ("limit_s", "typical_load_s"):
        ends = name == "typical_load_s" and service.derive is not None  # with its last reply
        if service.load == "requests" and name in tree.value and not ends:
            mistakes.add(tree.value[name], "is for finite loads and programs. Remove it, or set 'load'.")
    if service.timeout_s is not None and service.load != "finite":
        mistakes.add(tree.value["timeout_s"], "is for finite loads. Remove it, or set 'load: finite'.")
    if service.server is None:
        return
    server = tree.value["server"]
    _check_ports(server, service.server.health, service.server.ports, mistakes)
    if service.server.metrics_port is not None and service.server.metrics_port not in service.server.ports:
        mistakes.add(server.value["metrics_port"], f"is none of the ports {', '.join(service.server.ports)}.")
    if unknown := [name for name in service.server.inner_ports if name not in service.server.ports]:
        mistakes.add(server.value["inner_ports"], f"'{unknown[0]}' is none of the ports. Name it in `ports` too.")
    _check_parts(server, service.server, mistakes)
    types = {setting.name: "object" if setting.object else setting.type for setting in service.settings}
    parts = server.value["parts"].value if service.server.parts else []
    once = (part for part in service.server.parts if part.nodes == "server" and part.count is None)
    of_parts = (port for part in once for port in part.ports)
    known = {*service.server.ports, *of_parts}  # to every process: ports of processes that run once
    for key, entry in server.items():
        for text in _strings(entry) if key != "parts" else ():
            _check_template(text, known, service.server, types, mistakes)
    processes: list[tuple[Item, Server | Part]] = [(server, service.server)]
    processes += zip(parts, service.server.parts, strict=True)
    for entry, process in processes:
        if process.reset_caches is not None:
            _check_named(entry.value["reset_caches"], process.reset_caches, service, mistakes)
            if not process.ports:
                mistakes.add(entry.value["reset_caches"], "needs a port to be sent to. Write 'ports', or remove it.")
    for entry, part in zip(parts, service.server.parts, strict=True):
        _check_named(entry, part, service, mistakes)
        for text in _strings(entry):
            _check_template(text, known | set(part.ports), service.server, types, mistakes)


def _check_named(
    item: Item, noun: GpuMemory | Part | ResetCall | Service, service: Service, mistakes: Mistakes
) -> None:
    """Note each field that must name a setting of the service, and does not."""
    form: type[Any] = type(noun)
    for key, limits in limits_of(form).items():  # type: ignore[arg-type]  # a class can be hashed
        if "names" not in limits or (name := getattr(noun, key)) is None:
            continue
        setting = service.setting(name)
        if setting is None:
            guess = did_you_mean(name, (candidate.name for candidate in service.settings))
            mistakes.add(item.value[key], f"'{name}' is no setting of this service.{guess}")
        elif setting.type != limits["names"] or setting.role != "deployment":
            text = f"'{name}' must be a setting of type {limits['names']} and role deployment."
            mistakes.add(item.value[key], text)


def _check_tokens(item: Item, declared: GpuMemory, mistakes: Mistakes) -> None:
    try:
        groups = re.compile(declared.tokens_line or "()").groups
    except re.error as error:
        mistakes.add(item.value["tokens_line"], f"is no regular expression: {error}.")
    else:
        if groups != 1:
            mistakes.add(item.value["tokens_line"], f"needs one group, the number of tokens, and has {groups}.")


def _check_parts(item: Item, server: Server, mistakes: Mistakes) -> None:
    if not server.parts:
        return
    entries = item.value["parts"].value
    names = Counter(part.name for part in server.parts)
    ports = Counter([*server.ports, *(port for part in server.parts for port in part.ports)])
    for entry, part in zip(entries, server.parts, strict=True):
        if part.name == MAIN or names[part.name] > 1:
            mistakes.add(entry.value["name"], f"'{part.name}' is the name of something else. Choose another one.")
        elif not part.name.replace("-", "_").isidentifier():
            mistakes.add(entry.value["name"], f"'{part.name}' is no name: use letters, digits, '-' and '_'.")
        for port in part.ports:
            if ports[port] > 1:
                mistakes.add(entry.value["ports"], f"'{port}' is a port of something else. Choose another name.")
        for name in part.counters:
            if part.count is None or not part.ports:
                text = "is of the copies of a part, which have a port. Write 'count' and 'ports', or remove it."
                mistakes.add(entry.value["counters"], text)
            elif name not in REPLICA_SERIES:
                guess = did_you_mean(name, REPLICA_SERIES)
                text = f"'{name}' is none of {', '.join(REPLICA_SERIES)}.{guess}"
                mistakes.add(entry.value["counters"].value[name], text)
        if part.count is not None and part.nodes != "server":
            mistakes.add(
                entry.value["nodes"], "copies of a part are on the server's node. Remove 'nodes' or 'count'."
            )
        if part.health is not None:
            _check_ports(entry, part.health, part.ports, mistakes)


def _check_ports(item: Item, health: Health, ports: Collection[str], mistakes: Mistakes) -> None:
    if health.port not in ports and (ports or health.probe != "command"):
        mistakes.add(item.value.get("health", item), f"the port '{health.port}' is none of {tuple(ports)}.")


def template_fields(item: Item, mistakes: Mistakes) -> list[str]:
    """Return the fields of a template, none after noting braces that do not match."""
    try:
        return [field for _, field, _, _ in string.Formatter().parse(item.value) if field is not None]
    except ValueError as error:
        mistakes.add(item, f"{error}. A brace that is meant as one is written twice: '{{{{'.")
        return []


def _check_template(
    item: Item, ports: set[str], server: Server, settings: Mapping[str, str], mistakes: Mistakes
) -> None:
    copies = [part.name for part in server.parts if part.count and part.ports]
    for field in template_fields(item, mistakes):
        name, _, rest = field.partition("[")
        key = rest.rstrip("]")
        if name not in PLACES:
            mistakes.add(item, f"'{{{field}}}' is not known. Known: {', '.join(PLACES)}.")
        elif name == "values" and server.values is None:
            mistakes.add(item, "'{values}': the server has no 'values'.")
        elif name == "ports" and key not in ports:
            mistakes.add(item, f"'{{{field}}}': no such port. Ports: {', '.join(sorted(ports))}.")
        elif name == "addresses" and key not in (parts := [MAIN, *(part.name for part in server.parts)]):
            mistakes.add(item, f"'{{{field}}}': no such part. Parts: {', '.join(parts)}.{did_you_mean(key, parts)}")
        elif name == "urls" and key not in copies:
            there = ", ".join(copies) or "none"
            text = f"'{{{field}}}': no part with `count` and `ports`. Parts: {there}.{did_you_mean(key, copies)}"
            mistakes.add(item, text)
        elif name in ALONE and not ALONE[name].fullmatch(item.value):
            mistakes.add(item, f"'{{{field}}}' stands for several words of a command: write it as one alone.")
        elif name in ("settings", "switches", "words", "options") and key not in settings:
            mistakes.add(item, f"'{{{field}}}': no such setting of this service.")
        elif name == "switches" and settings[key] != "bool":
            mistakes.add(item, f"'{{{field}}}': only a setting of type bool is a switch.")
        elif name == "options" and settings[key] != "object":
            mistakes.add(item, f"'{{{field}}}': only a setting with 'object: true' has options.")


def _strings(item: Item) -> list[Item]:
    if isinstance(item.value, str):
        return [item]
    children = item.value.values() if isinstance(item.value, dict) else item.value
    return [text for child in children for text in _strings(child)] if isinstance(item.value, (dict, list)) else []


def check_program_texts(tree: Item, mistakes: Mistakes) -> None:
    """Note each placeholder in the text of a program, in any list of strings below `tree`."""
    for words in _command_lines(tree):
        for interpreter, text in _program_texts(words):
            if fields := _placeholders(text.value):
                mistakes.add(
                    text,
                    f"the placeholder '{{{fields[0]}}}' stands in a program that {interpreter} reads: what it stands"
                    f" for could be read as program. Pass it as an argument: [{_remedy(interpreter, fields[0])}].",
                )


def _remedy(interpreter: str, field: str) -> str:
    if interpreter in SHELLS:
        return f'{interpreter}, -c, \'... "$1" ...\', NAME, "{{{field}}}"'
    option = TEXT_LETTERS[interpreter]
    return f"{interpreter}, -{option}, '... {FIRST_ARGUMENT[interpreter]} ...', \"{{{field}}}\""


def _command_lines(item: Item) -> Iterator[list[Item]]:
    """Yield every list of strings."""
    if isinstance(item.value, list):
        if item.value and all(isinstance(word.value, str) for word in item.value):
            yield item.value
        for child in item.value:
            yield from _command_lines(child)
    for _, child in item.items():
        yield from _command_lines(child)


def _program_texts(words: list[Item]) -> Iterator[tuple[str, Item]]:
    """Yield each interpreter of a command line with its program text."""
    for position, word in enumerate(words):
        name = "python" if word.value == "{python}" else re.sub(r"[\d.]+$", "", PurePath(word.value).name)
        if name in TEXT_LETTERS and (text := _text_after(words[position + 1 :], TEXT_LETTERS[name])):
            yield name, text


def _text_after(words: list[Item], letter: str) -> Item | None:
    """Return the program text among an interpreter's options, None where it runs a file."""
    options = iter(words)
    for word in options:
        if word.value in TAKES_A_WORD:
            next(options, None)
        elif re.fullmatch(rf"-[A-Za-z]*{letter}[A-Za-z]*|--command|--eval", word.value):
            return next((option for option in options if not re.fullmatch(r"[-+][A-Za-z]+", option.value)), None)
        elif not word.value.startswith(("-", "+")):
            return None
    return None


def _placeholders(text: str) -> list[str]:
    """Return the placeholders of a template, also where its braces do not match."""
    try:
        return [field for _, field, _, _ in string.Formatter().parse(text) if field is not None]
    except ValueError:
        return PLACEHOLDER.findall(text)
