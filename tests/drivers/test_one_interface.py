"""One interface: each recipe's driver is one of two kinds, and what comes after a load knows none of them."""

import ast
import sys
from importlib import import_module
from pathlib import Path

import pytest

from seamark.config.read import read_services
from seamark.load import driver as protocols
from seamark.model.service import Service

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "seamark"
SERVICES = read_services(ROOT / "config" / "services")
KINDS = {"wire": protocols.Wire, "threads": protocols.Call, "processes": protocols.Call}
AFTER_THE_LOAD = ("metrics", "checks", "analysis", "report", "stats")
SPEAK_TO_SERVICES = {"drivers", "servers"}
sys.path.insert(0, str(ROOT / "docs"))
layers = import_module("layers")


def asked_of(kind: type) -> set[str]:
    """Return the methods that a kind of driver has."""
    return {name for each in kind.__mro__ for name, it in vars(each).items() if callable(it) and name[0] != "_"}


def files_of(module: str) -> list[Path]:
    """Return a driver's source, those whose names begin with its name, and those of drivers that these import."""
    path = PACKAGE / Path(*module.split(".")[1:]).with_suffix(".py")
    found, ahead = [], sorted(path.parent.glob(f"{path.stem}*.py"))
    while ahead:
        file = ahead.pop()
        if file not in found:
            found.append(file)
            names = [name for _, name in layers.imports(file) if name.startswith("seamark.drivers.")]
            beside = [PACKAGE / Path(*name.split(".")[1:]).with_suffix(".py") for name in names]
            ahead += [each for each in beside if each.is_file()]
    return found


def methods_in(module: str) -> list[set[str]]:
    """Return the methods of each class of a driver, inherited ones too, without importing any."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files_of(module)]
    classes = {node.name: node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}

    def methods(name: str) -> set[str]:
        node = classes[name]
        bases = [base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in node.bases]
        own = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
        return own.union(*(methods(base) for base in bases if base in classes))

    return [methods(name) for name in classes]


@pytest.mark.covers("E2")
@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)
def test_the_driver_of_every_recipe_is_one_of_two_kinds(service: Service) -> None:
    module, _, _ = service.driver.partition(":")
    wanted = asked_of(KINDS[service.workers])
    assert wanted > {"bodies"}
    assert any(wanted <= methods for methods in methods_in(module)), (
        f"{service.driver} lacks some of {sorted(wanted)}"
    )


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
