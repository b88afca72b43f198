"""One interface: each recipe's driver extends one of two kinds, and what comes after a load knows none of them."""

import ast
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest
from shipped import SERVICES

from seamark.load.driver import Call, Task, Wire
from seamark.model.service import Service

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
PACKAGE = SRC / "seamark"
KINDS = {"wire": Wire, "threads": Call, "processes": Call}
AFTER_THE_LOAD = ("metrics", "checks", "analysis", "report", "stats")
SPEAK_TO_SERVICES = {"drivers", "testservers"}
sys.path.insert(0, str(ROOT / "docs"))
layers = import_module("layers")


def files_of(module: str) -> list[Path]:
    """Return a driver's source: its package, or the files whose names begin with its name."""
    path = SRC / Path(*module.split("."))
    return sorted(path.glob("*.py") if path.is_dir() else path.parent.glob(f"{path.name}*.py"))


def bases_in(module: str, *users: str) -> set[str]:
    """Return what the classes of a driver extend, also by another driver, without importing any: their libraries may
    not be here. `users` are the drivers that extend it."""
    nodes = [node for file in files_of(module) for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    found = {ast.unparse(base) for node in nodes if isinstance(node, ast.ClassDef) for base in node.bases}
    for node in nodes:
        named = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set()
        if named & found and re.match(r"seamark\w*\.(drivers|trials)\.", str(node.module)):
            extended = str(node.module).removesuffix(".driver")
            found |= bases_in(extended, module, *users) if extended not in (module, *users) else set()
    return found


@pytest.mark.slow
@pytest.mark.covers("E2")
@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)
def test_the_driver_of_every_recipe_extends_the_kind_that_the_recipe_names(service: Service) -> None:
    module, _, _ = service.driver.partition(":")
    kind = Task if service.load == "program" else KINDS[service.workers]
    assert kind.__name__ in bases_in(module)


@pytest.mark.slow
@pytest.mark.covers("E2")
@pytest.mark.parametrize("room", AFTER_THE_LOAD)
def test_metrics_and_pictures_know_no_driver_and_no_server(room: str) -> None:
    arrows = layers.arrows(PACKAGE)
    reached, ahead = set(), [room]
    while ahead:
        for target in arrows.get(ahead.pop(), {}):
            if target not in reached:
                reached.add(target)
                ahead.append(target)
    assert reached & SPEAK_TO_SERVICES == set()
    assert not any(name == "snakemake" for path in (PACKAGE / room).rglob("*.py") for _, name in layers.imports(path))
