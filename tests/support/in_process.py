"""Runs bench in this process: what would be a traceback is raised."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from seamark.cli.main import main


def run(words: list[str]) -> tuple[int, str]:
    """Run bench in this process; return its code and all that it printed. What would be a traceback is raised."""
    said, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", each) for each in ("strict", "backslashreplace"))
    before, sys.argv = sys.argv, ["bench", *words]
    code: Any = 0
    try:
        with redirect_stdout(said), redirect_stderr(errors):
            main()
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.argv = before
    texts = []
    for each in (said, errors):
        each.flush()
        texts.append(each.buffer.getvalue().decode("utf-8"))  # type: ignore[attr-defined]
    return code, "".join(texts)
