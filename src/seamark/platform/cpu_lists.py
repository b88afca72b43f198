"""Numbers of CPUs as text, the way the kernel and taskset write them: 0-3,8."""

import re
from collections.abc import Collection

_PART = re.compile(r"\s*(\d{1,5})\s*(?:-\s*(\d{1,5})\s*)?")


def cores_in(text: str) -> tuple[int, ...]:
    """Return the numbers that `text` names, in order. Raises ValueError with what is wrong."""
    numbers: set[int] = set()
    for part in text.split(","):
        found = _PART.fullmatch(part)
        if found is None:
            raise ValueError(f"'{text}' names no CPUs; write numbers and ranges such as 0-3,8")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise ValueError(f"the range {part.strip()} ends before it begins")
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def shown_cores(numbers: Collection[int]) -> str:
    """Return the numbers as text, ranges joined."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
