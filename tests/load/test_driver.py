"""A driver's optional parts are declared: by its class, with defaults, and by its module's HOOKS."""

import sys
from pathlib import Path

import pytest
from shipped import SERVICES

from seamark.load.driver import Body, Hooks, Target, Wire, declared, hooks_of, make_of
from seamark.load.workers.hooks import hooks_here

PLAIN_CALL = """
class Driver:
    unit, kinds = "call", ("call",)
    def __init__(self, target): self.body_count = 7
    def bodies(self, count, seed): return []
    def session(self): return "a session"
    def failure(self, error): return 0
"""
PLAIN_WIRE = """
class Plain:
    __slots__ = ("most_units",)
    unit, kinds = "reply", ("get",)
    def bodies(self, count, seed): return []
    def row_body(self, number, row, seed): return number
    def address(self): return "127.0.0.1", 1
    def encode(self, body):
        self.most_units = 9
        return b""
    def decoder(self): return None

def Driver(target):
    return Plain()
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Write the source that a test is parametrised with as a module that can be imported."""
    (tmp_path / "a_users_driver.py").write_text(request.param)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "a_users_driver", raising=False)
    return "a_users_driver:Driver"


@pytest.mark.parametrize("module", [PLAIN_CALL], indirect=True)
def test_a_class_that_extends_no_kind_has_its_own_parts_and_the_defaults_of_a_call_driver(
    module: str, tmp_path: Path
) -> None:
    driver = make_of(module)(Target(settings={}, data=tmp_path))
    assert (driver.speaks, driver.body_count, driver.row_body) == ("call", 7, None)
    assert driver.session() == "a session"  # type: ignore[union-attr]
    assert not hasattr(driver, "encode")


@pytest.mark.parametrize("module", [PLAIN_WIRE], indirect=True)
def test_a_function_may_return_an_object_with_slots_whose_parts_change_later(module: str, tmp_path: Path) -> None:
    driver = make_of(module)(Target(settings={}, data=tmp_path))
    assert driver.speaks == "wire"
    assert (driver.tls, driver.body_count, driver.most_units) == (None, None, 0)
    assert driver.row_body is not None
    driver.encode(Body(content=None))
    assert driver.most_units == 9


def test_a_driver_that_extends_a_kind_is_taken_as_it_is() -> None:
    class Own(Wire):
        unit, kinds, body_count = "reply", ("get",), 3

        def bodies(self, count, seed): ...
        def address(self): ...
        def encode(self, body): ...
        def decoder(self): ...

    made = Own()
    assert declared(made) is made
    assert (made.tls, made.row_body, made.body_count) == (None, None, 3)


def test_a_driver_that_lacks_a_method_of_its_kind_cannot_be_made() -> None:
    class Unfinished(Wire):
        unit, kinds = "reply", ("get",)

    with pytest.raises(TypeError, match="abstract method"):
        Unfinished()  # type: ignore[abstract]


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("def stage(target, seed): ...", {"stage"}),
        ("from os import listdir as populate\nstage = print", {"stage", "populate"}),
        ("class Driver:\n    unit = 'reply'", set()),
        (
            "from seamark.load.driver import Hooks\ndef stage(t, s): ...\nHOOKS = Hooks(quality=stage)",
            {"quality"},
        ),
    ],
    indirect=["module"],
)
def test_a_module_has_the_hooks_that_it_declares_else_those_that_its_functions_names_say(
    module: str, expected: set[str]
) -> None:
    assert {name for name, hook in vars(hooks_of(module)).items() if hook is not None} == expected


@pytest.mark.parametrize(
    "module", ["import a_library_that_is_nowhere", "raise SystemExit(3)", "class Driver(:"], indirect=True
)
def test_the_hooks_of_a_module_that_cannot_be_imported_here_are_not_known_here(module: str) -> None:
    assert hooks_here(module) is None
    assert hooks_here("a_module_that_is_nowhere:Driver") is None


@pytest.mark.parametrize("name", SERVICES)
def test_every_shipped_driver_declares_its_hooks_without_the_library_of_its_service(name: str) -> None:
    hooks = hooks_here(SERVICES[name].driver)
    assert isinstance(hooks, Hooks)
    assert not {"torch", "faiss", "psycopg2", "boto3", "tritonclient", "pymilvus"} & set(sys.modules)
