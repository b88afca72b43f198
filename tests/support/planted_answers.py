"""A study whose judge plants the answers: what each method has right is known beforehand."""

import json

from study_folder import StudyFolder

RECIPE = """\
extends: known.yaml
name: asked
load: finite
limit_s: 120
judge: planted_judge:score
qualities:
  score: {range: [0, 1], floor: 0, help: Whether the answer is right.}
settings:
  items: {type: int, role: workload, default: 400, minimum: 1, help: Number of questions.}
  method: {type: str, role: workload, default: dense, help: How the answer is computed.}
"""
JUDGE = """\
from seamark.load.driver import Judged

def score(target, items, replies):
    method = target.settings["method"]
    right = [item % 5 != 0 and not (method == "lossy" and item % 8 == 1) for item in items]
    return Judged(
        scores={"score": [float(each) for each in right]},
        ids=[f"q{item}" for item in items],
        answers=[f"{item}" if each else "no" for item, each in zip(items, right)],
        facts={"depth": [item % 4 / 4 for item in items]},
    )
"""


def plant(study: StudyFolder, *, methods: tuple[str, ...] = ("dense", "same", "lossy"), **scenario: object) -> None:
    """Write recipe, judge and scenario: of 400 items dense has every fifth wrong, `same` the same ones, and `lossy`
    every eighth more."""
    (study.root / "planted_judge.py").write_text(JUDGE)
    (study.root / "config/services/asked.yaml").write_text(RECIPE)
    workload = {
        "service": "asked",
        "method": list(methods),
        "ttft_ms": 1,
        "gap_ms": 1,
        "gen_tokens": 4,
        "concurrency": 8,
    }
    document = {"scenario": "try", "repetitions": 1, "workload": workload, **scenario}
    (study.root / "config/scenarios/try.yaml").write_text(json.dumps(document))
