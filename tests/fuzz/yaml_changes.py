"""Strategies: a valid YAML file of ours with a few of its parts changed, and what odd values look like in YAML."""

import copy
import random
import string
from functools import cache
from typing import Any

import yaml
from hypothesis import strategies as st

ODD = (
    *(
        "",
        "null",
        "~",
        "[]",
        "{}",
        "true",
        "no",
        "0",
        "-1",
        "1",
        "1.5",
        "-0.0",
        "1e3",
        "1e400",
        ".nan",
        ".inf",
        "-.inf",
    ),
    *("0b", "0b_", "0x_", "0x", "0o", "0b1", "0x1F", "010", "1_0", "1:30", "_", "1__", "+", "0.1.2", "9" * 400),
    *("9" * 5000, "0x" + "f" * 5000, "-" + "9" * 30, "1e308", "5e-324", "9007199254740993", "9223372036854775808"),
    *("!!int abc", "!!float abc", "!!bool abc", "!!null abc", "!!binary abc", "!!str 5", "!!int [1]", "!!set {a}"),
    *(
        "!!python/object:os.system {}",
        "!local 5",
        "!!timestamp abc",
        "2026-01-01",
        "!!map []",
        "!!seq {}",
        "!!float []",
    ),
    *("'x'", '"\\u0000"', '"\\uD800"', "[1, [2]]", "{a: 1}", "[{}]", "[null]", "{: }", "{a: {b: {c: 1}}}", "? a"),
    *("&a 1", "*a", "<<", "=", "@", "`", "%", "|\n  x", ">\n  y", "- 1", "a: b: c", "é", "١", "𝟚", "\ufeff", "\x7f"),
    *(
        "[" * 100 + "]" * 100,
        "$HOME",
        "$NO_SUCH_VARIABLE",
        "~root/x",
        "/dev/null",
        "/proc/self/mem",
        ".",
        "/",
        "../..",
    ),
    *(
        "'{ports[main]}'",
        "'{'",
        "'{x}'",
        "'{settings[a]}'",
        "'{0}'",
        "'{ports}'",
        "'{ports[main]!r:>9999}'",
        "a" * 300,
    ),
    *("module:Class", ":", "a.b:", "batch <= concurrency", "latency_p99_s <= 0.2", "latency_s <= 1e999", "1 <= 2"),
)
"""Values as they are written: types that do not fit, limits and beyond, tags, and what YAML reads in two ways."""
words = st.text(alphabet=string.ascii_letters + string.digits + "_-. é[]{}:'\"&*#!|>%@\\\n\t\x00", max_size=12)
odd_values = st.one_of(st.sampled_from(ODD), words, st.integers().map(str), st.floats().map(str))


@cache
def _tree(text: str) -> Any:
    return yaml.safe_load(text)


def loaded(text: str) -> Any:
    """Return a YAML text as a tree of its own."""
    return copy.deepcopy(_tree(text))


def text_of(tree: Any, raw: dict[str, str]) -> str:
    """Return a tree as YAML, where each of its marks stands for the raw text of that name."""
    text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=1000)
    for mark, value in raw.items():
        text = text.replace(mark, value)
    return text


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Return each part of a tree as its container and its key or index there."""
    found: list[tuple[Any, Any]] = []
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in list(entries):
        found += [(tree, key), *places(value)]
    return found


def change(tree: Any, draw: random.Random, mark: str) -> Any:
    """Return the tree with one part taken away, put elsewhere, renamed, wrapped, or replaced by the mark."""
    held, key = draw.choice(places(tree))
    kind = draw.choice(("odd",) * 5 + ("gone", "list", "twice", "renamed", "swapped", "key"))
    if kind == "gone":
        del held[key]
    elif kind == "list":
        held[key] = [held[key]]
    elif kind == "twice":
        held[key] = [held[key], mark]
    elif kind in ("renamed", "key") and isinstance(held, dict):
        held[mark if kind == "key" else f"{key}s"] = held.pop(key)
    elif kind == "swapped":
        other, place = draw.choice(places(tree))
        held[key] = copy.deepcopy(other[place])
    else:
        held[key] = mark
    return tree


@st.composite
def changed_files(draw: st.DrawFn, files: list[str]) -> str:
    """One of the files with one to three of its parts changed; now and then its text is cut or mixed up too."""
    tree, dice, raw = loaded(draw(st.sampled_from(files))), draw(st.randoms(use_true_random=False)), {}
    for number in range(draw(st.integers(1, 3))):
        mark = f"MARK{number}KRAM"
        raw[mark] = draw(odd_values)
        if places(tree):
            tree = change(tree, dice, mark)
    changed = text_of(tree, raw)
    if draw(st.integers(0, 9)) == 0:
        at = draw(st.integers(0, len(changed)))
        changed = changed[:at] + draw(odd_values) + changed[at + draw(st.integers(0, 3)) :]
    return changed
