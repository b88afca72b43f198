"""Commands: argument list, environment, files to keep, exit codes that mean success, and figures of the output."""

import re
import shlex
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from seamark.config.decode import SMALL_NAME, WRONG, decode, is_mapping, known_keys, scalar
from seamark.config.forms.form import Document, Form, Leaves
from seamark.config.recipe_checks import check_program_texts, template_fields
from seamark.config.yaml_source import Item, Mistakes
from seamark.errors import did_you_mean
from seamark.model.objectives import PROGRAM_QUALITIES
from seamark.model.scenario import Workload, is_placeholder
from seamark.model.service import Service

KEYS = ("name", "argv", "environment", "keep", "success", "figures")
PLACES = ("settings", "data", "work")
EXAMPLE = "{argv: [sort, --parallel=2, file]}"
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FIGURE_KEYS = ("json", "regex", "of", "better")
BETTER = {"more": "higher", "less": "lower", "higher": "higher", "lower": "lower"}
"""Which values of a figure are better, as it is written -> as it is kept."""


class CommandForm(Form):
    """`argv` and `environment` are templates of the command; the rest says what is made of its end. A variable with a
    list of values is a factor."""

    name = "command"
    presets = "commands"
    example = f"a command such as {EXAMPLE}"

    def read(self, item: Item, service: Service, mistakes: Mistakes, leaves: Leaves) -> Document | None:
        """Return the command in a mapping, or None after noting every mistake in it."""
        before = mistakes.count
        known_keys(item, KEYS, mistakes)
        parts = item.value
        found: dict[str, Any] = {}
        if "argv" not in parts:
            mistakes.add(item, f"the key 'argv' is missing: the command and its arguments, as in {EXAMPLE}.")
        for key, form in (("name", str), ("argv", tuple[str, ...]), ("keep", tuple[str, ...])):
            if key in parts and (value := decode(parts[key], form, mistakes)) is not WRONG:
                found[key] = list(value) if isinstance(value, tuple) else value
        if "success" in parts and (codes := decode(parts["success"], tuple[int, ...], mistakes)) is not WRONG:
            found["success"] = list(codes)
            _check_codes(parts["success"], mistakes)
        if "environment" in parts:
            found["environment"] = _environment(parts["environment"], mistakes, leaves)
        if "figures" in parts:
            found["figures"] = _figures(parts["figures"], mistakes)
        if mistakes.count == before:
            _check(item, found, service, mistakes)
        return found if mistakes.count == before else None

    def check(self, item: Item, workload: Workload, mistakes: Mistakes) -> None:
        """A command fits with every other setting."""

    def label(self, document: Document) -> str:
        """Return the name of the program."""
        return PurePosixPath(str(document["argv"][0])).name

    def text(self, document: Document) -> str:
        """Return the command line, and what is read of its output."""
        environment = [
            f"{name}={'...' if is_placeholder(text) else text}"
            for name, text in document.get("environment", {}).items()
        ]
        line = " ".join([*environment, shlex.join(document["argv"])])
        figures = ", ".join(document.get("figures", {}))
        return f"{line} (figures: {figures})" if figures else line

    def qualities(self, document: Document) -> tuple[str, ...]:
        """Return the names of the figures, and of those that every command has."""
        return (*PROGRAM_QUALITIES, *document.get("figures", {}))

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of one command."""
        text, texts = {"type": "string", "minLength": 1}, {"type": "array", "items": {"type": "string"}}
        plain = {"type": ["string", "number"]}
        several = {"type": "array", "items": plain, "minItems": 1}
        figure = {
            "type": "object",
            "additionalProperties": False,
            "properties": dict.fromkeys(FIGURE_KEYS, text) | {"better": {"enum": list(BETTER)}},
            "oneOf": [{"required": ["json"]}, {"required": ["regex"]}],
        }
        return {
            "type": "object",
            "additionalProperties": False,
            "required": ["argv"],
            "properties": {
                "name": text,
                "argv": texts | {"minItems": 1},
                "environment": {"type": "object", "additionalProperties": {"anyOf": [plain, several]}},
                "keep": texts,
                "success": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}},
                "figures": {
                    "type": "object",
                    "propertyNames": {"pattern": f"^{SMALL_NAME.pattern}$"},
                    "additionalProperties": figure,
                },
            },
        }


def _environment(item: Item, mistakes: Mistakes, leaves: Leaves) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for name, variable in item.items() if is_mapping(item, mistakes) else ():
        if not VARIABLE.fullmatch(name):
            mistakes.add(variable, f"'{name}' is no name of a variable: use letters, digits and '_'.")
        elif isinstance(variable.value, list):
            found[name] = leaves.read(f"command.environment.{name}", variable, mistakes)
        elif isinstance(variable.value, (int, float)) and not isinstance(variable.value, bool):
            found[name] = str(variable.value)
        elif (value := scalar(variable, str, mistakes)) is not WRONG:
            found[name] = value
    return found


def _figures(item: Item, mistakes: Mistakes) -> Mapping[str, Mapping[str, str]]:
    found: dict[str, Mapping[str, str]] = {}
    for name, figure in item.items() if is_mapping(item, mistakes) else ():
        if not SMALL_NAME.fullmatch(name):
            mistakes.add(figure, f"'{name}' is no name of a figure: use small letters, digits and '_'.")
        elif name in PROGRAM_QUALITIES:
            mistakes.add(figure, "every command has this figure. Choose another name, or remove the line.")
        elif is_mapping(figure, mistakes):
            known_keys(figure, FIGURE_KEYS, mistakes)
            values = {key: scalar(part, str, mistakes) for key, part in figure.items() if key in FIGURE_KEYS}
            if isinstance(better := values.get("better"), str):
                values["better"] = BETTER.get(better, "")
                if better not in BETTER:
                    guess = did_you_mean(better, BETTER)
                    mistakes.add(figure.value["better"], f"'{better}' is not allowed.{guess} Write more or less.")
            if ("json" in values) == ("regex" in values):
                mistakes.add(figure, "needs either 'json' (a dotted path) or 'regex' (with one group).")
            elif isinstance(pattern := values.get("regex"), str):
                _check_pattern(figure.value["regex"], pattern, mistakes)
            found[name] = values
    return found


def _check_pattern(item: Item, pattern: str, mistakes: Mistakes) -> None:
    try:
        if re.compile(pattern).groups != 1:
            mistakes.add(item, "needs one group in parentheses: the number.")
    except re.error as error:
        mistakes.add(item, f"is no regular expression: {error}.")


def _check_codes(item: Item, mistakes: Mistakes) -> None:
    if not item.value:
        mistakes.add(item, "an empty list has no exit code. Remove the line for 0.")
    for code in item.value:
        if not 0 <= code.value <= 255:
            mistakes.add(code, f"{code.value} is no exit code: 0 to 255.")


def _check(item: Item, document: Mapping[str, Any], service: Service, mistakes: Mistakes) -> None:
    """Note templates with unknown names, and paths that lead out of the command's folder."""
    argv = item.value["argv"]
    before = mistakes.count
    if not document["argv"] or not document["argv"][0]:
        mistakes.add(argv, f"is empty. Write the command and its arguments, as in {EXAMPLE}.")
    own = item.value["environment"].items() if "environment" in document else ()
    templates = [*argv.value]
    for _, variable in own:
        templates += variable.value if isinstance(variable.value, list) else [variable]
    settings = [setting.name for setting in service.settings if setting.type != "structure"]
    for template in templates:
        if isinstance(template.value, str):
            _check_template(template, service.name, settings, mistakes)
    if mistakes.count == before:
        check_program_texts(argv, mistakes)
    paths = [*(item.value["keep"].value if "keep" in document else ())]
    figures = item.value["figures"].items() if "figures" in document else ()
    paths += [figure.value["of"] for _, figure in figures if "of" in figure.value]
    for entry in paths:
        path = PurePosixPath(entry.value)
        if path.is_absolute() or ".." in path.parts or not entry.value.strip():
            mistakes.add(entry, f"{entry.shown} is no path below the command's folder.")


def _check_template(item: Item, service: str, settings: list[str], mistakes: Mistakes) -> None:
    for field in template_fields(item, mistakes):
        name, _, rest = field.partition("[")
        key = rest.removesuffix("]")
        if name not in PLACES or bool(rest) != (name == "settings"):
            known = "Known: {settings[NAME]}, {data}, {work}. A brace that is meant as one is written twice: '{{'."
            mistakes.add(item, f"'{{{field}}}' is not known. {known}")
        elif name == "settings" and key not in settings:
            known = f" Settings: {', '.join(settings)}." if settings else ""
            guess = did_you_mean(key, settings) or known
            text = f"'{{{field}}}': {service} has no such setting. A recipe that extends it may have one."
            mistakes.add(item, text + guess)
