"""Words of amounts: the plural of a noun, a count with its noun, a share in percent, a time with its unit."""

LONGEST_MS = 10_000.0
"""Times beyond are printed in seconds."""


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


def unit_of_times(longest_ms: float) -> tuple[str, float]:
    """Return the unit in which times up to `longest_ms` are printed, and its factor from ms: s above 10 s."""
    return ("s", 1e-3) if longest_ms > LONGEST_MS else ("ms", 1.0)


def in_time(time_s: float) -> str:
    """Return a time with its unit and four digits: `98.35 ms`, above 10 s `92.5 s`."""
    unit, factor = unit_of_times(1e3 * time_s)
    return f"{1e3 * time_s * factor:.4g} {unit}"
