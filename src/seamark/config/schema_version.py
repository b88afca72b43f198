"""The version of the form of scenarios, recipes and sites: what is read, and how an older one is brought up to date.

docs/forms.md says what changes the version and what does not, and lists all changes.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from seamark import __version__
from seamark.config.yaml_source import Item, Mistakes, load

KEY = "schema_version"
Step = Callable[[Item], tuple[Item, str]]
"""Takes a file of one form; gives it in the next one, and what was changed in words."""

STEPS: tuple[Step, ...] = ()
"""The first turns form 1 into form 2, and so on: there is one form more than steps."""


class FormNote(UserWarning):
    """A file was read though it has an older form."""


def current() -> int:
    """Return the form that this version reads without a change."""
    return 1 + len(STEPS)


def load_form(path: Path, mistakes: Mistakes) -> Item | None:
    """Return the mapping that a file holds, in the present form and without its version; without one it has form 1.

    An older form is brought up to date with a FormNote. None after noting why it cannot be read: also a newer form.
    """
    tree = load(path, mistakes)
    if tree is None or not isinstance(tree.value, dict):
        return tree
    item = tree.value.get(KEY)
    form = 1 if item is None else item.value
    if item is not None and (type(form) is not int or form < 1):
        mistakes.add(item, f"expected a number from 1 to {current()}, but it is {item.shown}.")
        return None
    if item is not None and form > current():
        mistakes.add(
            item,
            f"form {form} needs a newer Seamark: this one, {__version__}, reads forms up to {current()}. Install the"
            f" first release whose docs/forms.md lists form {form}, or a later one; or write the file in form"
            f" {current()}.",
        )
        return None
    tree = replace(tree, value={key: each for key, each in tree.items() if key != KEY})
    return _brought_up(tree, form)


def _brought_up(tree: Item, form: int) -> Item:
    changes = []
    for step in STEPS[form - 1 :]:
        tree, change = step(tree)
        changes.append(change)
    if changes:
        text = f"{tree.file}: read as form {current()}, though it has form {form}: {'; '.join(changes)}."
        warnings.warn(FormNote(f"{text} Change it so, and write '{KEY}: {current()}'."), stacklevel=2)
    return tree
