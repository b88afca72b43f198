"""Programs written into a command line, as after `sh -c`: no placeholder may stand in their text.

A value put into the text would be read as program: a folder called `it's` ends a quotation, and `$(...)` runs.
"""

import re
import string
from collections.abc import Iterator
from pathlib import PurePath

from seamark.config.yaml_source import Item, Mistakes

SHELLS = ("sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "fish")
TEXT_LETTERS = {**dict.fromkeys(SHELLS, "c"), "python": "c", **dict.fromkeys(("perl", "ruby", "node"), "e")}
"""Interpreters by name without their version, and the letter of the option that brings the text of a program."""
FIRST_ARGUMENT = {"python": "sys.argv[1]", "perl": "$ARGV[0]", "ruby": "ARGV[0]", "node": "process.argv[1]"}
"""How a program names its first argument; in a shell "$1"."""
TAKES_A_WORD = ("-o", "+o", "-O", "+O", "--rcfile", "--init-file", "-W", "-X")
"""Options of interpreters whose next word is a value of theirs."""
PLACEHOLDER = re.compile(r"\{(\w+)[^{}]*\}")


def check_program_texts(tree: Item, mistakes: Mistakes) -> None:
    """Note each placeholder in the text of a program, in any list of strings below `tree`."""
    for words in _lists(tree):
        for interpreter, text in _texts(words):
            if fields := _placeholders(text.value):
                mistakes.add(
                    text,
                    f"the placeholder '{{{fields[0]}}}' stands in a program that {interpreter} reads: what it stands"
                    f" for could be read as program. Pass it as an argument: [{_remedy(interpreter, fields[0])}].",
                )


def _remedy(interpreter: str, field: str) -> str:
    if interpreter in SHELLS:
        return f'{interpreter}, -c, \'... "$1" ...\', NAME, "{{{field}}}"'
    option = TEXT_LETTERS[interpreter]
    return f"{interpreter}, -{option}, '... {FIRST_ARGUMENT[interpreter]} ...', \"{{{field}}}\""


def _lists(item: Item) -> Iterator[list[Item]]:
    """Give every list of strings."""
    if isinstance(item.value, list):
        if item.value and all(isinstance(each.value, str) for each in item.value):
            yield item.value
        for each in item.value:
            yield from _lists(each)
    for _, each in item.items():
        yield from _lists(each)


def _texts(words: list[Item]) -> Iterator[tuple[str, Item]]:
    """Give each interpreter of a command line, by name, with the text of a program that it is given."""
    for place, word in enumerate(words):
        name = "python" if word.value == "{python}" else re.sub(r"[\d.]+$", "", PurePath(word.value).name)
        if name in TEXT_LETTERS and (text := _text_after(words[place + 1 :], TEXT_LETTERS[name])):
            yield name, text


def _text_after(words: list[Item], letter: str) -> Item | None:
    """Return the text that the options of an interpreter bring, None for one that is given a file."""
    options = iter(words)
    for word in options:
        if word.value in TAKES_A_WORD:
            next(options, None)
        elif re.fullmatch(rf"-[A-Za-z]*{letter}[A-Za-z]*|--command|--eval", word.value):
            return next((each for each in options if not re.fullmatch(r"[-+][A-Za-z]+", each.value)), None)
        elif not word.value.startswith(("-", "+")):
            return None
    return None


def _placeholders(text: str) -> list[str]:
    """Return the placeholders of a template; those that can be seen where its braces do not match."""
    try:
        return [field for _, field, _, _ in string.Formatter().parse(text) if field is not None]
    except ValueError:
        return PLACEHOLDER.findall(text)
