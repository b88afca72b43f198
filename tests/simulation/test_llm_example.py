"""The example of LLM replicas in the docs prints what the docs say."""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to-simulate.md"


@pytest.mark.slow
@pytest.mark.covers("C14")
def test_the_example_of_replicas_prints_what_the_page_says():
    blocks = r"```python\n(import numpy.*?)```\n\n```text\n(.*?)```"
    [(example, output)] = re.findall(blocks, PAGE.read_text("utf-8"), re.DOTALL)
    said = StringIO()
    with redirect_stdout(said):
        exec(compile(example, str(PAGE), "exec"), {})
    assert said.getvalue() == output
