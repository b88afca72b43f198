"""Derived parts of the pages: commands, services, metrics and verdicts, each from its single source in the code."""

import ast
import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from seamark.analysis.checks import CHECKS  # noqa: E402
from seamark.analysis.metrics.table import METRICS  # noqa: E402
from seamark.cli.main import cli  # noqa: E402
from seamark.config.levels import show  # noqa: E402
from seamark.model.failure_categories import FAILURE_CATEGORIES  # noqa: E402
from seamark.model.service import Server, Service, Setting, Value  # noqa: E402
from seamark.patterns.table import FINITE_SETTINGS, LOAD_SETTINGS  # noqa: E402

MADE = "Made by `make docs` from {source}. Do not edit."


def commands(group: click.Group = cli, parent: click.Context | None = None) -> Iterator[tuple[str, click.Context]]:
    """Give the full name and the context of every command, groups before what is in them."""
    name = "bench" if parent is None else group.name
    context = click.Context(group, info_name=name, parent=parent, terminal_width=100, **group.context_settings)
    if parent is None:
        yield context.command_path, context
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context, terminal_width=100, max_content_width=100)
        yield inner.command_path, inner
        if isinstance(command, click.Group):
            yield from commands(command, context)


def cli_page() -> str:
    """Return cli.md: the help of every command."""
    lines = [
        "# The command bench",
        "",
        MADE.format(source="the help of each command"),
        "",
        "A file is named relative to the study, the folder in which `bench` is called. A scenario is named by its",
        "file or its name, alone or behind `-c`; `--site` takes a name from `config/sites`. Colours are off with",
        "`NO_COLOR=1` and without a terminal.",
        "",
        "| exit code | meaning |",
        "| --- | --- |",
        "| 0 | done |",
        "| 1 | some trials failed; with `--strict` also: the results do not [pass the gate](how-to-gate-in-ci.md) |",
        "| 2 | usage error; nothing was run |",
        "| 3 | the site lacks something, such as Slurm, an image or space |",
        "| 130 | stopped by Ctrl-C; `bench submit` resumes |",
    ]
    shared = shared_options()
    lines += ["", "## Options of several commands", "", "| option | meaning |", "| --- | --- |"]
    lines += [f"| `{names}` | {text} |" for names, text in shared]
    for path, context in commands():
        also = [option for option in options_of(context) if option.get_help_record(context) in shared]
        for option in also:
            option.hidden = True
        text = "\n".join(line.rstrip() for line in context.command.get_help(context).splitlines())
        for option in also:
            option.hidden = False
        lines += ["", f"## {path}", "", "```text", text, "```"]
        if names := [next(name for name in option.opts if name.startswith("--")) for option in also][:-1]:
            lines += ["", f"Also {', '.join(f'`{name}`' for name in names)}."]  # without --help, the last
    return "\n".join(lines) + "\n"


def options_of(context: click.Context) -> list[click.Option]:
    """Return the options of a command that its help shows."""
    options = [option for option in context.command.get_params(context) if isinstance(option, click.Option)]
    return [option for option in options if not option.hidden]


def shared_options() -> list[tuple[str, str]]:
    """Return names and text of the options that at least three commands have with the same text, the most frequent
    one of equal names."""
    found = Counter(option.get_help_record(context) for _, context in commands() for option in options_of(context))
    often = {record[0]: record for record, count in reversed(found.most_common()) if record and count >= 3}
    return sorted(often.values())


def services_page(services: Mapping[str, Service]) -> str:
    """Return services.md: every recipe with its settings; one that extends another has the differences only."""
    lines = [
        "# Services",
        "",
        MADE.format(source="the recipes in `config/services`"),
        "",
        "A service has its own settings beside the settings of its load. A setting without a default is unset: its",
        "text says what `none` means.",
        "",
        "| service | what it is | tested here |",
        "| --- | --- | --- |",
    ]
    for service in services.values():
        seen = "no" if service.not_run_here else "in part" if service.unseen(contained=True) else "yes"
        lines.append(f"| [{service.name}](#{service.name}) | {_cell(service.summary).rstrip('.')} | {seen} |")
    shared = [setting.name for setting in FINITE_SETTINGS if setting in LOAD_SETTINGS]
    lines += [
        "",
        "## Settings of loads of requests",
        "",
        *map(_item, LOAD_SETTINGS),
        "",
        "## Settings of finite loads",
        "",
        f"{_names(shared)} are as in loads of requests. Defaults of `limit_s` and `timeout_s` come from the recipe.",
        "",
        *(_item(setting) for setting in FINITE_SETTINGS if setting.name not in shared),
    ]
    for service in services.values():
        lines += ["", f"## {service.name}", "", *_service(service, _base(service, services))]
    return "\n".join(lines) + "\n"


def _base(service: Service, services: Mapping[str, Service]) -> Service | None:
    """Return the service that a recipe extends."""
    text = (ROOT / "config" / "services" / f"{service.name}.yaml").read_text(encoding="utf-8")
    found = re.search(r"^extends: (\w+)\.yaml$", text, re.MULTILINE)
    return services[found[1]] if found else None


ROLES = {
    "deployment": "Settings of the server; a change starts a new server:",
    "workload": "Settings of the load:",
    "policy": "Choices under the same load:",
}


def settings_lists(settings: Sequence[Setting]) -> list[str]:
    """Return the lines of a list of settings for each role."""
    lines: list[str] = []
    for role, caption in ROLES.items():
        items = [_item(setting) for setting in settings if setting.role == role]
        if items:
            lines += ["", caption, "", *items]
    return lines[1:]


def _item(setting: Setting) -> str:
    facts = [_values(setting)]
    if setting.required:
        facts.append("required")
    elif setting.default is not None:
        facts.append(f"default `{show(setting.default)}`")
    text = " ".join(setting.help.split())
    return f"- `{setting.name}` ({', '.join(facts)}): {text}"


def _values(setting: Setting) -> str:
    """Return what a setting may be: its texts, or its type with limits and unit."""
    if setting.allowed is not None:
        return ", ".join(f"`{show(value)}`" for value in setting.allowed)
    words = [setting.type, _allowed(setting), setting.unit or "", *(f"or `{word}`" for word in setting.words)]
    return " ".join(word for word in words if word)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _service(service: Service, base: Service | None) -> list[str]:
    lines = [_cell(service.summary).rstrip(".") + ".", ""]
    if service.not_run_here:
        lines += [f"> **Not tested here.** {_cell(service.not_run_here)}", ""]
    lines += [_cell(service.why), ""] if service.why else []
    same = _facts(base) if base else {}
    always = ("version", "licence", "in Apptainer")
    facts = {name: fact for name, fact in _facts(service).items() if name in always or fact != same.get(name)}
    if service.timeout_s is not None:
        facts["default of `timeout_s`"] = f"{service.timeout_s:g} s"
    lines += [f"- {name}: {_cell(fact)}" for name, fact in facts.items()]
    if service.notes:
        lines += ["", _cell(service.notes)]
    if not service.settings:
        return [*lines, "", "No settings of its own."]
    known = base.settings if base else ()
    changed = [setting for setting in service.settings if setting not in known]
    if base is not None:
        gone = {setting.name for setting in known} - {setting.name for setting in service.settings}
        without = f" without {_names(sorted(gone))}" if gone else ""
        lines += ["", f"Other facts and settings are as in [{base.name}](#{base.name}){without}."]
    return [*lines, "", *settings_lists(changed)] if changed else lines


def _facts(service: Service) -> dict[str, str]:
    environment = f"`envs/{service.environment}.lock`" if service.environment else "the base environment"
    if service.environment and not (ROOT / "envs" / f"{service.environment}.lock").exists():
        environment = f"{service.environment}, which has no lock yet"
    facts = {
        "version": service.version,
        "licence": service.licence,
        "driver": f"`{service.driver}`, {service.workers}" + ("" if service.server else ", inside the client"),
        "environment": environment,
    }
    if service.server is not None:
        health = service.server.health
        facts["ports"] = ", ".join(service.server.ports)
        facts["health"] = f"{health.probe} on {health.port}, within {health.timeout_s:g} s"
        if service.server.metrics_port:
            facts["metrics"] = f"{service.server.metrics_path} on {service.server.metrics_port}"
        facts |= _nodes(service.server)
    if service.container is not None:
        pinned = "" if service.container.digest is None else f", {service.container.digest}"
        facts["image"] = f"`{service.container.image}`{pinned}"
    if service.in_apptainer:
        facts["in Apptainer"] = service.in_apptainer
    return facts


def _nodes(server: Server) -> list[tuple[str, str]]:
    """Return the facts of a recipe on several nodes; none for a server of one process."""
    if not server.parts:
        return []
    own = "beside the load, on all nodes" if server.load_nodes == "shared" else "on nodes of its own"
    where = {"server": "on the server's node", "others": "on each further node", "each": "on each of its nodes"}
    facts = [
        ("nodes", f"from {server.fewest_nodes}; the server is {own}"),
        ("parts", ", ".join(f"`{part.name}` {where[part.nodes]}" for part in server.parts)),
    ]
    if server.network_environment:
        variables = ", ".join(f"`{name}={value}`" for name, value in server.network_environment.items())
        facts.append(("network", f"{variables} for every process; `network_environment` of the site overrides it"))
    return facts


def _allowed(setting: Setting) -> str:
    low, high = _bound(setting.minimum), _bound(setting.maximum)
    if low and high:
        return f"{low} to {high}"
    return f"from {low}" if low else f"to {high}" if high else ""


def _bound(value: float | None) -> str:
    exact: Value = int(value) if value is not None and float(value).is_integer() else value
    return "" if value is None else show(exact)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def metrics_tables() -> str:
    """Return a table of the metrics of metrics.json; those that are described alike, but for their last
    word, share a row."""
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    for metric in METRICS:
        group, _, last = metric.path.rpartition(".")
        meaning = metric.meaning.replace(last, "…") if group else metric.meaning
        way = "—" if metric.better == "neither" else metric.better
        rows.setdefault((group, metric.unit, way, meaning), []).append(last)
    lines = ["| metric | unit | better | meaning |", "| --- | --- | --- | --- |"]
    alike: dict[tuple[str, str, str], list[str]] = {}
    for (group, unit, which, meaning), names in rows.items():
        inside = f"{group}." if group else ""
        figure = f"`{inside}{names[0]}`" if len(names) == 1 else f"`{inside}…`: {', '.join(names)}"
        text = meaning.replace("…", names[0]) if len(names) == 1 else meaning
        alike.setdefault((unit, which, _cell(text)), []).append(figure)
    lines += [
        f"| {', '.join(figures)} | {unit} | {which} | {text} |" for (unit, which, text), figures in alike.items()
    ]
    return "\n".join(lines)


def reasons() -> Iterator[tuple[str, str, str, str]]:
    """Give code, severity, why and remedy of each check, read from its source."""
    for check in CHECKS:
        [function] = ast.parse(inspect.getsource(check)).body
        assert isinstance(function, ast.FunctionDef)
        severity, remedy = (" or ".join(_texts(value)) for value in _severity_and_remedy(function))
        yield function.name, severity, (check.__doc__ or "").partition("\n\n")[0], remedy


def reasons_tables() -> str:
    """Return the codes of all checks, and those of trials without metrics."""
    lines = ["| code | severity | why | remedy |", "| --- | --- | --- | --- |"]
    lines += [
        f"| `{code}` | {severity} | {_cell(why)} | {_cell(remedy)} |" for code, severity, why, remedy in reasons()
    ]
    lines += ["", "A trial that failed as a whole is INVALID, with its category as the code:", ""]
    lines += ["| category | meaning | remedy |", "| --- | --- | --- |"]
    lines += [
        f"| `{name}` | {_cell(category.help)} | {_cell(category.remedy)} |"
        for name, category in FAILURE_CATEGORIES.items()
    ]
    return "\n".join(lines)


def _severity_and_remedy(function: ast.FunctionDef) -> list[ast.expr]:
    """Return the first two arguments of `@check`, of a check without it the same of its VerdictReason."""
    for made in function.decorator_list:
        if isinstance(made, ast.Call):
            return made.args[:2]
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    made = next(call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "VerdictReason")
    return [keyword.value for key in ("severity", "remedy") for keyword in made.keywords if keyword.arg == key]


def _texts(value: ast.expr) -> Iterator[str]:
    """Yield the possible texts of an argument: all of a tuple or an `x if y else z`; an inserted value is N."""
    if isinstance(value, ast.Tuple):
        for text in value.elts:
            yield from _texts(text)
    if isinstance(value, ast.IfExp):
        yield from _texts(value.body)
        yield from _texts(value.orelse)
    elif isinstance(value, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "N" for part in value.values)
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
