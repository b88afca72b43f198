"""Writes the pages and schemas derived from code and tests; --check writes nothing and prints the differences.

Called as `python docs/make.py [--check]`; `make docs` does so, and the tests run the check.
"""

import difflib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
sys.path[:0] = [str(DOCS), str(ROOT / "src"), str(ROOT / "tests" / "support")]

import layers  # noqa: E402
import reference  # noqa: E402
import traceability  # noqa: E402
from shipped import SERVICES  # noqa: E402

from seamark.analysis.grafana import dashboard_text  # noqa: E402
from seamark.analysis.metrics.schema import schema_text  # noqa: E402
from seamark.config import json_schema as model_schema  # noqa: E402
from seamark.errors import UserError  # noqa: E402


def between(text: str, name: str, content: str) -> str:
    """Return `text` with the part between `<!-- name: begin ... -->` and `<!-- name: end -->` replaced."""
    begin, end = text.find(f"<!-- {name}: begin"), text.find(f"<!-- {name}: end")
    if not 0 <= begin < end:
        raise UserError(f"the marks '<!-- {name}: begin -->' and '<!-- {name}: end -->' are missing or out of order.")
    head = text.index("-->", begin) + 3
    return f"{text[:head]}\n\n{content.strip()}\n\n{text[end:]}"


def traceability_page() -> str:
    """Return docs/traceability.md."""
    parts = traceability.requirements(DOCS / "requirements.yaml")
    claims = traceability.claims_of(ROOT / "tests")
    traceability.check_ids(claims, [name for part in parts.values() for name in part])
    return traceability.page(parts, claims)


def architecture_page() -> str:
    """Return docs/architecture.md with the layers derived from the code."""
    parts = []
    for name, rooms in {"seamark": layers.ROOMS, **layers.ROOMS_OF_PLUGINS}.items():
        found = layers.arrows(ROOT / "src" / name)
        if unknown := [room for room in found if room not in rooms]:
            raise UserError(*layers.breaches({room: {} for room in unknown}, rooms))
        parts.append(f"### `src/{name}`\n\n{layers.drawn(found, rooms)}")
    return between((DOCS / "architecture.md").read_text(encoding="utf-8"), "layers", "\n\n".join(parts))


def measurement_page() -> str:
    """Return docs/measurement.md with the metrics and the reasons of the code."""
    text = (DOCS / "measurement.md").read_text(encoding="utf-8")
    text = between(text, "metrics", reference.metrics_tables())
    return between(text, "reasons", reference.reasons_tables())


def schema(name: str) -> str:
    """Return the JSON Schema of a scenario, recipe or site."""
    return model_schema.as_text(model_schema.schemas(SERVICES)[name])


PAGES: dict[str, Callable[[], str]] = {
    "docs/traceability.md": traceability_page,
    "docs/architecture.md": architecture_page,
    "docs/measurement.md": measurement_page,
    "docs/cli.md": lambda: reference.cli_page(),
    "docs/services.md": lambda: reference.services_page(SERVICES),
    "workflow/schemas/scenario.schema.json": lambda: schema("scenario.schema.json"),
    "workflow/schemas/service.schema.json": lambda: schema("service.schema.json"),
    "workflow/schemas/site.schema.json": lambda: schema("site.schema.json"),
    "workflow/schemas/metrics.schema.json": schema_text,
    "docs/grafana.json": dashboard_text,
}


def derived() -> tuple[dict[str, str], list[str]]:
    """Return every derived page, and the mistakes of those that cannot be derived."""
    pages, mistakes = {}, []
    for name, make in PAGES.items():
        try:
            pages[name] = make()
        except UserError as mistake:
            mistakes += [f"{name}: {line}" for line in mistake.mistakes]
    return pages, mistakes


def differences(pages: Mapping[str, str]) -> list[str]:
    """Return a diff for each page that is not current."""
    found = []
    for name, text in pages.items():
        path = ROOT / name
        written = path.read_text(encoding="utf-8") if path.exists() else ""
        lines = difflib.unified_diff(written.splitlines(), text.splitlines(), name, "as derived", lineterm="", n=0)
        if difference := "\n".join(list(lines)[:40]):
            found.append(difference)
    return found


def main(arguments: list[str]) -> int:
    """Write every page, or with --check print the differences; return the exit code."""
    if arguments not in ([], ["--check"]):
        print("usage: python docs/make.py [--check]", file=sys.stderr)
        return 2
    pages, wrong = derived()
    if arguments:
        found = differences(pages)
        wrong += [*found, "Run `make docs` and commit what it writes."] if found else []
    else:
        for name, text in pages.items():
            (ROOT / name).write_text(text, encoding="utf-8")
            print(name)
    print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
