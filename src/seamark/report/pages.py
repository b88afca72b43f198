"""Writes the report of a scenario: one HTML file that stands alone, the same as Markdown, and its figures."""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from seamark.report.content import Block, Picture, Section, Text
from seamark.report.course import order_picture, phases_picture
from seamark.report.factors import factor_pictures
from seamark.report.glossary import glossary_section
from seamark.report.header import about, headline
from seamark.report.nodes import nodes_section
from seamark.report.overview import glance, slug, trials_section
from seamark.report.provenance import configuration_section, deployments_table, reproduce_section
from seamark.report.search import search_blocks
from seamark.report.side_by_side import Task, side_by_side
from seamark.report.source import Results, read_results
from seamark.report.tails import tail_pictures
from seamark.report.timeline import timeline_picture
from seamark.report.verdicts import failures_section, verdicts_section
from seamark.storage.paths import write_text

TICKED = re.compile(r"`([^`]+)`")
COURSE = ""
"""Under which the figures of the whole run stand among those of the workloads."""


def write_report(scenario_folder: Path, reports_folder: Path) -> Path:
    """Write index.html, report.md and figures/ of one scenario and return the path of index.html.

    `scenario_folder` is the scenario's folder of results, with plan.json and summary.json in it; the report goes
    to a folder of the same name below `reports_folder`. Samples are read row group by row group. Raises ValueError
    when plan or summary are damaged and FileNotFoundError when they are missing.
    """
    results = read_results(scenario_folder)
    folder = reports_folder / scenario_folder.name
    _emptied(folder / "figures")
    sections = page(results, folder / "figures")
    environment = _environment()
    told = {
        "title": results.scenario,
        "headline": headline(results),
        "about": about(results),
        "sections": sections,
        "style": files("seamark.report").joinpath("page.css").read_text(encoding="utf-8"),
        "made_at": datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    write_text(folder / "report.md", environment.get_template("page.md.j2").render(told))
    index = folder / "index.html"
    write_text(index, environment.get_template("page.html.j2").render(told))
    return index


def _emptied(folder: Path) -> None:
    """Make `folder` and drop figures of an earlier report, which may have had others."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in ("*.svg", "*.png"):
        for old in folder.glob(kind):
            old.unlink()


def page(results: Results, figures: Path) -> tuple[Section, ...]:
    """Return the sections of a report; its figures are written below `figures`."""
    drawn = _drawn(results, figures)
    found = (
        glance(results),
        failures_section(results),
        verdicts_section(results),
        *services(results, drawn),
        course_section(results, drawn[COURSE]),
        trials_section(results),
        configuration_section(results),
        nodes_section(results),
        reproduce_section(results),
        glossary_section(),
    )
    return tuple(section for section in found if section is not None)


def _drawn(results: Results, figures: Path) -> Mapping[str, Sequence[Block]]:
    """Draw every figure of a report; return those of each workload by its stem, and those of its course."""
    tasks: list[tuple[str, Task]] = []
    for service, workloads in results.services():
        for workload, treatments in workloads:
            stem = _stem(service, workload)
            what = (results, workload, treatments, stem, figures)
            tasks.append((stem, partial(search_blocks, *what)))
            tasks.append((stem, partial(factor_pictures, *what)))
            tasks.append((stem, partial(tail_pictures, *what)))
            tasks.append((stem, partial(_one, timeline_picture, *what)))
    tasks += [(COURSE, partial(_one, draw, results, figures)) for draw in (phases_picture, order_picture)]
    drawn: dict[str, list[Block]] = {name: [] for name, _ in tasks}
    for (name, _), blocks in zip(tasks, side_by_side([task for _, task in tasks]), strict=True):
        drawn[name] += blocks
    return drawn


def _one(draw: Callable[..., Picture | None], *what: object) -> list[Block]:
    picture = draw(*what)
    return [] if picture is None else [picture]


def _stem(service: str, workload: str) -> str:
    return slug(f"{service} {workload}" if service not in workload else workload)


def services(results: Results, drawn: Mapping[str, Sequence[Block]]) -> list[Section]:
    """Return a section for each service, with the figures of each of its workloads."""
    sections = []
    for service, workloads in results.services():
        inner = []
        for workload, _ in workloads:
            stem = _stem(service, workload)
            nothing = Text(text="No trial of this workload is ok: there is nothing to draw.", kind="warning")
            blocks = tuple(drawn[stem]) or (nothing,)
            inner.append(Section(id=f"workload-{stem}", title=workload, blocks=blocks))
        if len(inner) == 1:
            sections.append(Section(id=f"service-{slug(service)}", title=service, blocks=inner[0].blocks))
        else:
            sections.append(Section(id=f"service-{slug(service)}", title=service, sections=tuple(inner)))
    return sections


def course_section(results: Results, drawn: Sequence[Block]) -> Section:
    """Return how the scenario went: deployments, and drift over the order of the run."""
    blocks = list(drawn)
    if results.deployments:
        blocks.append(deployments_table(results))
    if not blocks:
        blocks = [Text(text="No deployment left a record, and no treatment was repeated.")]
    return Section(id="course", title="Course of the run", blocks=tuple(blocks))


def _environment() -> Environment:
    here = files("seamark.report")
    environment = Environment(
        loader=FunctionLoader(lambda name: here.joinpath(name).read_text(encoding="utf-8")),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["data_uri"] = lambda svg: f"data:image/svg+xml;base64,{base64.b64encode(svg).decode('ascii')}"
    environment.filters["cell_md"] = _cell_md
    environment.filters["ticks"] = _ticks
    environment.filters["plain"] = lambda text: TICKED.sub(r"\1", text)
    environment.filters["fenced"] = _fenced
    environment.filters["anchor"] = lambda title: "".join(
        c for c in title.lower() if c.isalnum() or c in " -_"
    ).replace(" ", "-")
    environment.tests["instance"] = lambda block, name: type(block).__name__ == name
    return environment


def _ticks(text: str) -> Markup:
    """Return text as HTML with what stands in `backticks` as code."""
    parts = TICKED.split(text)
    return Markup("").join(Markup("<code>{}</code>").format(p) if i % 2 else escape(p) for i, p in enumerate(parts))


def _fenced(text: str, language: str) -> str:
    """Return text as a fenced block; the fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    return f"{'`' * (longest + 1)}{language}\n{text.rstrip()}\n{'`' * (longest + 1)}"


def _cell_md(text: str) -> str:
    """Return text that cannot break a Markdown table or smuggle HTML into a page made of it."""
    escaped = text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")
    return " ".join(escaped.split())
