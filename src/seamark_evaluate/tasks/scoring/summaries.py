"""ROUGE of summaries, by the packages that the published harnesses use.

LongBench and LooGLE use `rouge` 1.0.1, InfiniteBench and ZeroSCROLLS use `rouge-score` 0.1.2. They differ: `rouge`
cuts texts at every full stop, counts each word once, keeps case and punctuation, and adds 1e-8 to the denominator
of F, so equal texts have 0.999999995.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from seamark_evaluate.tasks.scoring.words import cut

_EMPTY = (ValueError, ZeroDivisionError, RecursionError)
"""What `rouge` raises for texts without words. LongBench gives 0 for any error, also for one sentence of about a
thousand words, which exceeds Python's stack."""


def rouge_l(answer: str, reference: str) -> float:
    """Return the F of ROUGE-L at the level of summaries, 0 for an answer without words (LongBench)."""
    return _rouge(answer, reference, "f")["rouge-l"]


def rouge_l_chinese(answer: str, reference: str) -> float:
    """Return the same of Chinese texts, whose words jieba separates by blanks. The Chinese full stop cuts nothing."""
    return rouge_l(" ".join(cut(answer)), " ".join(cut(reference)))


def rouge_recall(answer: str, reference: str) -> Mapping[str, float]:
    """Return the recall of ROUGE-1, 2 and L, `score` that of ROUGE-L (LooGLE). An empty answer counts as 'None'."""
    found = _rouge(answer or "None", reference, "r")
    return {"score": found["rouge-l"], "rouge1": found["rouge-1"], "rouge2": found["rouge-2"]}


def rouge_l_sum(answer: str, reference: str) -> float:
    """Return the F of ROUGE-Lsum, whose sentences are lines, without a stemmer (InfiniteBench)."""
    return float(_scorer(("rougeLsum",), stem=False).score(reference, answer)["rougeLsum"].fmeasure)


def rouge_geometric(answer: str, reference: str) -> Mapping[str, float]:
    """Return the geometric mean of F of ROUGE-1, 2 and L with a stemmer, and the three (ZeroSCROLLS).

    The published figure is the geometric mean of the three means over all answers, which is not the mean of `score`:
    compute it from the means of `rouge1`, `rouge2` and `rougel`.
    """
    names = ("rouge1", "rouge2", "rougeL")
    found = _scorer(names, stem=True).score(reference, answer)
    one, two, longest = (float(found[name].fmeasure) for name in names)
    return {"score": (one * two * longest) ** (1 / 3), "rouge1": one, "rouge2": two, "rougel": longest}


def _rouge(answer: str, reference: str, statistic: str) -> dict[str, float]:
    from rouge import Rouge  # type: ignore[import-not-found,import-untyped,unused-ignore]

    try:
        [scores] = Rouge().get_scores([answer], [reference])
    except _EMPTY:
        return {"rouge-1": 0.0, "rouge-2": 0.0, "rouge-l": 0.0}
    return {name: float(score[statistic]) for name, score in scores.items()}


@cache
def _scorer(names: tuple[str, ...], *, stem: bool) -> Any:
    from rouge_score.rouge_scorer import RougeScorer  # type: ignore[import-not-found,import-untyped,unused-ignore]

    return RougeScorer(list(names), use_stemmer=stem)
