"""Words of counts: the plural of a noun, a count with its noun, a share in percent."""


def plural(noun: str) -> str:
    """Return the plural of a noun: queries, replies, classes, tokens."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def counted(number: int, noun: str) -> str:
    """Return a count with its noun in singular or plural: `1 trial`, `0 trials`, `2,304 trials`."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def in_percent(ratio: float, places: int = 0) -> str:
    """Return a ratio with its sign, and a space before it as ISO 80000 has it: `96 %`, `12.5 %` to one place."""
    return f"{100 * ratio:,.{places}f} %"
