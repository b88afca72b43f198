"""Limits on the fields of nouns: noted where a file breaks them, at any depth, beside every other mistake."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from seamark.config.decode import WRONG, decode
from seamark.config.yaml_source import Mistakes, yaml_tree
from seamark.model.annotations import keys_of, limited


@dataclass(frozen=True, kw_only=True)
class Wheel:
    turns: int = limited(1, minimum=1)
    wear: float | None = limited(None, above=0, below=1)


@dataclass(frozen=True, kw_only=True)
class Cart:
    name: str = limited(pattern="[a-z]+", wrong="is no name.")
    load_kg: float = limited(0.0, written="load_tonnes", minimum=0, maximum=2)
    wheels: tuple[Wheel, ...] = limited((), empty="has no wheel.")
    gears: Mapping[str, int] = limited(default_factory=dict, above=0, largest=9)
    seen: bool = limited(True, written="")


def read(text: str) -> tuple[object, list[tuple[str, str | None, int | None]]]:
    mistakes = Mistakes()
    tree = yaml_tree(text, Path("cart.yaml"), mistakes)
    assert tree is not None
    cart = decode(tree, Cart, mistakes)
    return cart, [(mistake.code, mistake.path, mistake.line) for mistake in mistakes.noted]


def test_a_noun_within_its_limits_has_the_values_of_its_file():
    text = "name: a\nload_tonnes: 2\nwheels: [{turns: 1, wear: 0.5}, {wear: null}]\ngears: {low: 9}\n"
    assert read(text) == (
        Cart(name="a", load_kg=2.0, wheels=(Wheel(turns=1, wear=0.5), Wheel()), gears={"low": 9}),
        [],
    )


@pytest.mark.parametrize(
    ("line", "code", "path"),
    [
        ("load_tonnes: 2.1", "out_of_limits", "load_tonnes"),
        ("load_tonnes: -0.1", "out_of_limits", "load_tonnes"),
        ("wheels: [{}, {turns: 0}]", "out_of_limits", "wheels[1].turns"),
        ("wheels: [{wear: 1}]", "out_of_limits", "wheels[0].wear"),
        ("wheels: [{wear: 0}]", "out_of_limits", "wheels[0].wear"),
        ("wheels: []", "no_value", "wheels"),
        ("gears: {low: 1, top: 0}", "out_of_limits", "gears.top"),
        ("gears: {top: 10}", "out_of_limits", "gears.top"),
        ("load_kg: 1", "unknown_key", "load_kg"),
        ("seen: true", "unknown_key", "seen"),
    ],
)
def test_what_breaks_a_limit_is_noted_with_its_path_and_line(line: str, code: str, path: str):
    assert read(f"name: a\n{line}\n")[1] == [(code, path, 2)]


def test_a_broken_limit_hides_no_other_mistake():
    cart, noted = read("name: A\nload_tonnes: 3\nwheels: [{turns: x}, {turns: 0}]\n")
    assert cart is WRONG
    assert noted == [
        ("wrong_form", "name", 1),
        ("out_of_limits", "load_tonnes", 2),
        ("wrong_type", "wheels[0].turns", 3),
        ("out_of_limits", "wheels[1].turns", 3),
    ]


def test_a_required_field_without_a_value_is_missing():
    assert read("load_tonnes: 1\n")[1] == [("missing", "", 1)]


def test_keys_are_those_of_files():
    assert list(keys_of(Cart)) == ["name", "load_tonnes", "wheels", "gears"]
