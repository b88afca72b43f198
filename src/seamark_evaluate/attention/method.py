"""A method of attention: maskers in order, each of which keeps keys for a query. Its documents are validated here.

No torch: every environment imports this module. `attend.py` computes a method.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from seamark.errors import UserError, did_you_mean
from seamark_evaluate.attention.masker_settings import (
    FIXED,
    MASKERS,
    PARAMETERS,
    AdaptiveSampling,
    Budget,
    Budgeted,
    HashTopK,
    Local,
    Masker,
    RandomKeys,
    Sink,
)

SparseFrom = Literal["question", "generation", "prompt"]
"""Where sparseness begins: with the question, with the first token that is fed back, or with the whole prompt."""
SPARSE_FROM: tuple[SparseFrom, ...] = get_args(SparseFrom)
Kernel = Literal["masked", "gathered"]
"""`masked` computes over all keys with a mask; `gathered` reads only keys and values that are kept."""
KERNELS: tuple[Kernel, ...] = get_args(Kernel)

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
MOST_MASKERS = 16


@dataclass(frozen=True, kw_only=True)
class Method:
    """Maskers in order; none means dense. Each adds keys to those that earlier ones keep; none takes any away."""

    name: str
    maskers: tuple[Masker, ...] = ()
    summary: str = ""
    source: str = ""

    @property
    def is_dense(self) -> bool:
        """Whether every key is kept by definition: a method without maskers."""
        return not self.maskers

    @property
    def is_fixed(self) -> bool:
        """Whether kept positions follow from positions alone; dense is such a method too."""
        return all(isinstance(masker, FIXED) for masker in self.maskers)

    def fixed_window(self, position: int) -> tuple[int, int]:
        """Return what a fixed method keeps for the query at a position: keys before the first number, and those from
        the second up to the position. The two may overlap; dense keeps all."""
        allowed = position + 1
        counts = {Sink: 0, Local: 0 if self.maskers else allowed}
        for masker in self.maskers:
            assert isinstance(masker, FIXED)
            counts[type(masker)] = max(counts[type(masker)], masker.budget.count(allowed))
        return counts[Sink], allowed - counts[Local]

    def keeps(self, key: int, position: int) -> bool:
        """Return whether a fixed method keeps a key for the query at a position."""
        sinks, start = self.fixed_window(position)
        return key <= position and (key < sinks or key >= start)

    @property
    def is_sampled(self) -> bool:
        """Whether kept keys are drawn at each step, so that the seed of a request changes them."""
        return any(isinstance(masker, RandomKeys | AdaptiveSampling) for masker in self.maskers)

    @property
    def document(self) -> Mapping[str, Any]:
        """The canonical document: name, and maskers with every parameter. Summary and source change nothing."""
        return {"name": self.name, "maskers": [_written(masker) for masker in self.maskers]}

    @property
    def notes(self) -> tuple[str, ...]:
        """What results must say of the method beyond its document."""
        return tuple(
            f"hash_top_k: random projections of seed {masker.seed}, not trained ones"
            if masker.weights is None
            else f"hash_top_k: trained projections of {masker.weights}"
            for masker in self.maskers
            if isinstance(masker, HashTopK)
        )


@dataclass(frozen=True, kw_only=True)
class MethodMistake:
    """A mistake in a document: the keys and indices that lead to its part, and a text with the remedy."""

    path: tuple[str | int, ...]
    text: str

    @property
    def place(self) -> str:
        """Return the path as it is written in messages: `maskers[1].keys`."""
        parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path]
        return "".join(parts).removeprefix(".")


def read_method(document: Any, where: str) -> Method:
    """Return the method of a document (a mapping of JSON or YAML). `where` begins each line of an error, as
    `config/methods/streaming.yaml` or `attention`. Raises UserError with every mistake."""
    if mistakes := list(method_mistakes(document)):
        raise UserError(
            *(f"{where}: {mistake.place}{': ' if mistake.path else ''}{mistake.text}" for mistake in mistakes)
        )
    return Method(
        name=document["name"],
        maskers=tuple(_masker(entry) for entry in document["maskers"]),
        summary=document.get("summary", ""),
        source=document.get("source", ""),
    )


def with_weights_at(document: Mapping[str, Any], place: Callable[[str], str]) -> Mapping[str, Any]:
    """Return a document with `place(name)` for each file of weights that it names. It may have mistakes."""
    maskers = document.get("maskers")
    if not isinstance(maskers, list | tuple):
        return document
    named = [isinstance(masker, Mapping) and masker.get("weights") for masker in maskers]
    whole = [
        {**masker, "weights": place(name)} if name else masker for masker, name in zip(maskers, named, strict=True)
    ]
    return {**document, "maskers": whole}


def method_mistakes(document: Any) -> Iterator[MethodMistake]:
    """Yield every mistake of a document; a document without one can be read."""
    if not isinstance(document, Mapping):
        yield MethodMistake(path=(), text=f"expected a method with 'name' and 'maskers', but it is {document!r}.")
        return
    yield from _unknown(document, ("name", "summary", "source", "maskers"), ())
    for key in ("name", "maskers"):
        if key not in document:
            yield MethodMistake(path=(), text=f"the key '{key}' is missing.")
    for key in ("name", "summary", "source"):
        if key in document and not isinstance(document[key], str):
            yield MethodMistake(path=(key,), text=f"{document[key]!r} is no text.")
    name = document.get("name")
    if isinstance(name, str) and not NAME.fullmatch(name):
        text = f"'{name}' cannot name a method: use letters, digits, '.', '_' and '-', at most 64."
        yield MethodMistake(path=("name",), text=text)
    yield from _maskers_mistakes(document.get("maskers", []))


def _maskers_mistakes(maskers: Any) -> Iterator[MethodMistake]:
    if not isinstance(maskers, list | tuple):
        text = f"expected a list of maskers, but it is {maskers!r}. Write [] for dense attention."
        yield MethodMistake(path=("maskers",), text=text)
        return
    if len(maskers) > MOST_MASKERS:
        yield MethodMistake(path=("maskers",), text=f"{len(maskers)} maskers are more than {MOST_MASKERS}.")
    for index, entry in enumerate(maskers):
        yield from _masker_mistakes(entry, ("maskers", index))


def _masker_mistakes(entry: Any, path: tuple[str | int, ...]) -> Iterator[MethodMistake]:
    if not isinstance(entry, Mapping):
        yield MethodMistake(path=path, text=f"expected a masker such as {{masker: sink, keys: 4}}, not {entry!r}.")
        return
    if "masker" not in entry:
        yield MethodMistake(path=path, text=f"the key 'masker' is missing. Known maskers: {', '.join(MASKERS)}.")
        return
    name = entry["masker"]
    if not isinstance(name, str) or name not in MASKERS:
        guess = did_you_mean(name, MASKERS) or f" Known: {', '.join(MASKERS)}."
        yield MethodMistake(path=(*path, "masker"), text=f"no masker is called {name!r}.{guess}")
        return
    form = MASKERS[name]
    own = [field.name for field in fields(form) if field.name != "budget"]
    allowed = (*(("keys", "fraction") if issubclass(form, Budgeted) else ()), *own)
    yield from _unknown(entry, ("masker", *allowed), path)
    if issubclass(form, Budgeted) and ("keys" in entry) == ("fraction" in entry):
        both = "both 'keys' and 'fraction' are given" if "keys" in entry else "neither 'keys' nor 'fraction' is given"
        yield MethodMistake(path=path, text=f"{both}. {name} needs one of them.")
    optional = ("weights", "seed", "weights_sha256")
    for key in own:
        if key not in entry and key not in optional:
            yield MethodMistake(path=path, text=f"the key '{key}' is missing: {PARAMETERS[key].text}.")
    for key in allowed:
        if key in ("weights", "weights_sha256"):
            if not isinstance(entry.get(key), str | None) or entry.get(key) == "":
                what = "file" if key == "weights" else "digest"
                text = f"{entry[key]!r} is no {what}. Leave it out for random projections."
                yield MethodMistake(path=(*path, key), text=text)
        elif key in entry and not PARAMETERS[key].holds(entry[key]):
            text = f"{entry[key]!r} is not allowed: {PARAMETERS[key].text}."
            yield MethodMistake(path=(*path, key), text=text)


def _unknown(
    entry: Mapping[Any, Any], allowed: tuple[str, ...], path: tuple[str | int, ...]
) -> Iterator[MethodMistake]:
    for key in entry:
        if key not in allowed:
            guess = did_you_mean(key, allowed) or f" Allowed: {', '.join(allowed)}."
            yield MethodMistake(path=(*path, str(key)), text=f"unknown key.{guess}")


def _masker(entry: Mapping[str, Any]) -> Masker:
    form: Any = MASKERS[entry["masker"]]
    own = {
        key: entry[key]
        if key in ("weights", "weights_sha256", "bits", "tables", "page", "seed")
        else float(entry[key])
        for field in fields(form)
        if (key := field.name) in entry
    }
    if issubclass(form, Budgeted):
        fraction = entry.get("fraction")
        own["budget"] = Budget(keys=entry.get("keys"), fraction=None if fraction is None else float(fraction))
    masker: Masker = form(**own)
    return masker


def _written(masker: Masker) -> dict[str, Any]:
    values = asdict(masker)
    if values.get("weights_sha256") is None:
        values.pop("weights_sha256", None)
    budget = {key: value for key, value in values.pop("budget", {}).items() if value is not None}
    return {"masker": masker.masker, **budget, **values}
