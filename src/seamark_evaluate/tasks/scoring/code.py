"""Similarity of a line of code, as LongBench measures it for lcc and repobench-p.

Source: code_sim_score in metrics.py of THUDM/LongBench, with fuzz.ratio of fuzzywuzzy 0.18.0.
"""

from difflib import SequenceMatcher

_MARKS = ("`", "#", "//")


def code_similarity(answer: str, reference: str) -> float:
    """Return the similarity of the first line that is neither a comment nor a mark of a code block, from 0 to 1.

    Published quirks: the ratio is that of difflib, which ignores frequent characters in lines of 200 or more, and is
    rounded to hundredths; a line with a `#` or `//` anywhere, such as a URL, is skipped.
    """
    lines = answer.lstrip("\n").split("\n")
    line = next((row for row in lines if not any(mark in row for mark in _MARKS)), "")
    if line == reference:
        return 1.0
    if not line or not reference:
        return 0.0
    return round(100 * SequenceMatcher(None, line, reference).ratio()) / 100
