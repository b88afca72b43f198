"""How people write how long something lasts: 45s, 30m, 2h, 1d, 02:00:00."""

import re

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
FORMS = "45s, 30m, 2h, 1d or 02:00:00"


def span_s(text: str) -> float:
    """Return a span in seconds; a bare number is seconds. ValueError for what is none, or is not above 0."""
    words = text.split(":")
    if len(words) == 3 and all(word.isdigit() for word in words):
        hours, minutes, seconds = map(int, words)
        found = hours * 3600.0 + minutes * 60.0 + seconds
    else:
        match = SPAN.fullmatch(text)
        found = float(match[1]) * SECONDS[match[2] or "s"] if match else 0.0
    if found <= 0:
        raise ValueError(f"{text}: not a duration. Give one as {FORMS}.")
    return found
