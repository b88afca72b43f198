"""Methods of attention: a level of `method` is a preset of config/methods, or maskers written in place."""

from typing import Any

from seamark.config.forms.form import Document, Form, Leaves
from seamark.config.yaml_source import Item, Mistakes
from seamark.model.digest import sha256_of
from seamark.model.scenario import Workload
from seamark.model.service import Service
from seamark.storage.paths import expanded
from seamark_evaluate.attention.masker_settings import MASKERS
from seamark_evaluate.attention.method import method_mistakes, read_method


class MethodForm(Form):
    """`name` and `maskers`, each with its parameters; a summary and a source change nothing."""

    name = "method"
    presets = "methods"
    example = "{name: sink, maskers: [{masker: sink, keys: 4}]}"

    def read(self, item: Item, service: Service, mistakes: Mistakes, leaves: Leaves) -> Document | None:
        """Return the method in a mapping, or None after noting every mistake in it."""
        document = item.plain
        before = mistakes.count
        for mistake in method_mistakes(document):
            mistakes.add(item.at(mistake.path), mistake.text)
        if mistakes.count > before:
            return None
        written = read_method(document, item.where).document
        maskers = [
            _with_digest(masker, item.at(("maskers", at)), mistakes) for at, masker in enumerate(written["maskers"])
        ]
        return {**written, "maskers": maskers} if mistakes.count == before else None

    def check(self, item: Item, workload: Workload, mistakes: Mistakes) -> None:
        """A method fits with every other setting."""

    def label(self, document: Document) -> str:
        """Return the name of the method."""
        return str(document["name"])

    def text(self, document: Document) -> str:
        """Return the maskers with their parameters."""
        maskers = [_shown(masker) for masker in document["maskers"]]
        return " + ".join(maskers) or "every key"

    def qualities(self, document: Document) -> tuple[str, ...]:
        """A method gives no figures of its own."""
        return ()

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of one method."""
        masker = {
            "type": "object",
            "required": ["masker"],
            "properties": {"masker": {"enum": list(MASKERS)}},
        }
        return {
            "type": "object",
            "additionalProperties": False,
            "required": ["name", "maskers"],
            "properties": {
                "name": {"type": "string", "minLength": 1},
                "summary": {"type": "string"},
                "source": {"type": "string"},
                "maskers": {"type": "array", "items": masker},
            },
        }


def _with_digest(masker: Document, item: Item, mistakes: Mistakes) -> Document:
    """Return a masker with the digest of its file of weights, if it has one: another file is another method. Notes a
    file that cannot be read, or is another than the digest that is written says."""
    if masker.get("weights") is None:
        return masker
    at = item.at(("weights",))
    try:
        digest = sha256_of(expanded(masker["weights"]))
    except OSError as error:
        mistakes.add(
            at,
            f"{masker['weights']}: {error.strerror}. Name a file of trained projections (safetensors), relative to"
            " the study, or leave it out for random ones.",
        )
        return masker
    if masker.get("weights_sha256") not in (None, digest):
        mistakes.add(at, f"{masker['weights']}: its SHA-256 is {digest}, not the weights_sha256 that is written.")
    return {**masker, "weights_sha256": digest}


def _shown(masker: Document) -> str:
    own = {**masker, "weights": masker.get("weights") or "random"} if masker["masker"] == "hash_top_k" else masker
    rest = ", ".join(f"{key}={value}" for key, value in own.items() if key != "masker" and value is not None)
    return f"{masker['masker']}({rest})"


METHOD = MethodForm()
