"""Derived parts of the pages: commands, services, metrics and verdicts, each from its single source in the code."""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
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
    for path, context in commands():
        text = "\n".join(line.rstrip() for line in context.command.get_help(context).splitlines())
        lines += ["", f"## {path}", "", "```text", text, "```"]
    return "\n".join(lines) + "\n"


def services_page(services: Mapping[str, Service]) -> str:
    """Return services.md: every recipe with its settings."""
    lines = [
        "# Services",
        "",
        MADE.format(source="the recipes in `config/services`"),
        "",
        "| service | component | version | licence | where it runs | tested here |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for service in services.values():
        link = f"[{service.name}](#{service.name})"
        unseen = service.unseen(contained=True)
        seen = f"no: {_cell(service.not_run_here)}" if service.not_run_here else "in part" if unseen else "yes"
        facts = (link, service.component, service.version, _cell(service.licence), _where(service), seen)
        lines.append(f"| {' | '.join(facts)} |")
    lines += [
        "",
        "A `deployment` setting needs a new server when it changes, a `workload` setting does not.",
        "",
        "## Settings of loads of requests",
        "",
        *settings_table(LOAD_SETTINGS),
        "",
        "## Settings of finite loads",
        "",
        "The default of `limit_s` is that of the recipe, and so is that of `timeout_s` where the recipe has one.",
        "",
        *settings_table(FINITE_SETTINGS),
    ]
    for service in services.values():
        lines += ["", f"## {service.name}", "", *_service(service)]
    return "\n".join(lines) + "\n"


def settings_table(settings: tuple[Setting, ...]) -> list[str]:
    """Return the lines of a table of settings."""
    lines = ["| setting | role | type | default | allowed | meaning |", "| --- | --- | --- | --- | --- | --- |"]
    for each in settings:
        default = "none" if each.default is None else f"`{show(each.default)}`"
        unit = f", {each.unit}" if each.unit else ""
        what = _cell(each.help)
        lines.append(
            f"| `{each.name}` | {each.role} | {each.type}{unit} | {default} | {_cell(_allowed(each))} | {what} |"
        )
    return lines


def _service(service: Service) -> list[str]:
    lines = [_cell(service.summary).rstrip(".") + ".", ""]
    if service.not_run_here:
        lines += [f"> **Not tested here.** {_cell(service.not_run_here)}", ""]
    elif unseen := service.unseen(contained=True):
        lines += [f"> **Its container was not tested here.** {_cell(unseen)}", ""]
    lines += [_cell(service.why), ""] if service.why else []
    environment = f"`envs/{service.environment}.lock`" if service.environment else "the base environment"
    if service.environment and not (ROOT / "envs" / f"{service.environment}.lock").exists():
        environment = f"{service.environment}, which has no lock yet"
    facts = [
        ("version", service.version),
        ("licence", service.licence),
        ("where it runs", _where(service)),
        ("driver", f"`{service.driver}`, workers: {service.workers}"),
        ("environment", environment),
    ]
    if service.server is not None:
        health = service.server.health
        facts.append(("ports", ", ".join(service.server.ports)))
        facts.append(("health", f"{health.probe} on {health.port}, within {health.timeout_s:g} s"))
        if service.server.metrics_port:
            facts.append(("scraped", f"{service.server.metrics_path} on {service.server.metrics_port}"))
        facts += _nodes(service.server)
    if service.container is not None:
        pinned = service.container.digest or "no digest pinned yet"
        facts.append(("image", f"`{service.container.image}`, {pinned}"))
    if service.timeout_s is not None:
        facts.append(("default of `timeout_s`", f"{service.timeout_s:g} s"))
    if service.in_apptainer:
        facts.append(("in Apptainer", service.in_apptainer))
    lines += [f"- {name}: {_cell(fact)}" for name, fact in facts]
    if service.notes:
        lines += ["", _cell(service.notes)]
    return [*lines, "", *(settings_table(service.settings) if service.settings else ["No settings of its own."])]


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


def _where(service: Service) -> str:
    return "inside the client" if service.server is None else "as a server"


def _allowed(setting: Setting) -> str:
    if setting.allowed is not None:
        return ", ".join(f"`{show(value)}`" for value in setting.allowed)
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
    """Return a table of the metrics of metrics.json; those that differ only in their last word share a row."""
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    for metric in METRICS:
        group, _, last = metric.path.rpartition(".")
        meaning = metric.meaning.replace(last, "…") if group else metric.meaning
        way = "—" if metric.better == "neither" else metric.better
        rows.setdefault((group, metric.unit, way, meaning), []).append(last)
    lines = ["| metric | unit | better | meaning |", "| --- | --- | --- | --- |"]
    for (group, unit, which, meaning), names in rows.items():
        inside = f"{group}." if group else ""
        figure = f"`{inside}{names[0]}`" if len(names) == 1 else f"`{inside}…`: {', '.join(names)}"
        text = meaning.replace("…", names[0]) if len(names) == 1 else meaning
        lines.append(f"| {figure} | {unit} | {which} | {_cell(text)} |")
    return "\n".join(lines)


def reasons() -> Iterator[tuple[str, str, str, str]]:
    """Give code, severity, why and remedy of each check that has a code of its own, read from its source."""
    for check in CHECKS:
        [function] = ast.parse(inspect.getsource(check)).body
        assert isinstance(function, ast.FunctionDef)
        made = _reason(function)
        if made is not None and _words(made, "code"):
            code, severity, remedy = (" or ".join(_words(made, key)) for key in ("code", "severity", "remedy"))
            yield code, severity, (check.__doc__ or "").partition("\n\n")[0], remedy


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


def _reason(function: ast.FunctionDef) -> ast.Call | None:
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
    return next((call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "VerdictReason"), None)


def _words(made: ast.Call, key: str) -> list[str]:
    """Return the possible texts of an argument: all of an `x if y else z`; an inserted value is N."""
    return list(_texts(next(each.value for each in made.keywords if each.arg == key)))


def _texts(value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.IfExp):
        yield from _texts(value.body)
        yield from _texts(value.orelse)
    elif isinstance(value, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "N" for part in value.values)
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
