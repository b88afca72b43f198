"""Table of scorers, and `score`, which applies a subset's. A row adds a scorer; a user's own come by dotted path."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType

from seamark.model.dotted import resolved
from seamark_evaluate.tasks.benchmark import Question, Subset
from seamark_evaluate.tasks.scoring import boxed, choices, clozes, code, matching, summaries, words

Scores = Mapping[str, float | None]


@dataclass(frozen=True, kw_only=True)
class Scorer:
    """How answers are scored. Exactly one of the first three is set.

    `best`: similarity to one reference, of which the best counts. `any_of`: score with all references. `classes`: one
    reference among the fact `all_classes`. `several`: scores by name for one reference, the best `score` counts.
    `packages` are those that the scorer imports, all of the environment `evaluation`.
    """

    best: Callable[[str, str], float] | None = None
    any_of: Callable[[str, Sequence[str]], float] | None = None
    classes: Callable[[str, str, Sequence[str]], float] | None = None
    several: Callable[[str, str], Scores] | None = None
    qualities: tuple[str, ...] = ("score",)
    packages: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()


SCORERS: Mapping[str, Scorer] = {
    "qa_f1": Scorer(best=words.qa_f1),
    "qa_f1_ascii": Scorer(best=words.qa_f1_ascii),
    "qa_f1_chinese": Scorer(best=words.qa_f1_chinese, packages=("jieba",)),
    "qa_f1_characters": Scorer(best=words.qa_f1_characters),
    "rouge_l": Scorer(best=summaries.rouge_l, packages=("rouge",)),
    "rouge_l_chinese": Scorer(best=summaries.rouge_l_chinese, packages=("rouge", "jieba")),
    "rouge_recall": Scorer(
        several=summaries.rouge_recall, qualities=("score", "rouge1", "rouge2"), packages=("rouge",)
    ),
    "rouge_l_sum": Scorer(best=summaries.rouge_l_sum, packages=("rouge-score",)),
    "rouge_geometric": Scorer(
        several=summaries.rouge_geometric,
        qualities=("score", "rouge1", "rouge2", "rougel"),
        packages=("rouge-score",),
    ),
    "classification": Scorer(classes=choices.classification, facts=("all_classes",)),
    "count": Scorer(best=choices.count),
    "retrieval": Scorer(best=choices.retrieval),
    "stated_letter": Scorer(best=choices.stated_letter),
    "letter": Scorer(best=choices.letter),
    "book_choice": Scorer(any_of=choices.book_choice),
    "code_debug": Scorer(any_of=choices.code_debug),
    "digest_share": Scorer(best=choices.digest_share),
    "order": Scorer(best=choices.order),
    "code_similarity": Scorer(best=code.code_similarity),
    "string_match_all": Scorer(any_of=matching.string_match_all),
    "string_match_part": Scorer(any_of=matching.string_match_part),
    "first_number": Scorer(any_of=matching.first_number),
    "whole_word": Scorer(any_of=matching.whole_word),
    "speaker": Scorer(any_of=matching.speaker),
    "last_number": Scorer(any_of=matching.last_number),
    "found_number": Scorer(any_of=matching.found_number),
    "counted_prefix": Scorer(any_of=matching.counted_prefix),
    "exact_word": Scorer(any_of=matching.exact_word),
    "accuracy": Scorer(any_of=matching.accuracy),
    "boxed": Scorer(several=boxed.boxed, qualities=("score", "answered")),
    "boxed_or_stated": Scorer(several=boxed.boxed_or_stated, qualities=("score", "answered")),
    "cloze": Scorer(several=clozes.cloze, qualities=("score", "partial", "masks")),
}
"""Scorers by name. Scores lie between 0 and 1; published tables show them times 100."""


def score(subset: Subset, question: Question, answer: str) -> Scores:
    """Return the scores of an answer by the names of the subset's qualities, `score` first; each from 0 to 1.

    `answer` is what the model wrote behind the prompt and the answer prefix. A scorer by dotted path is called with
    answer and question. Raises ValueError for a question whose references the scorer cannot read.
    """
    if subset.first_line:  # trec, triviaqa, samsum and lsht in eval.py of THUDM/LongBench
        answer = answer.lstrip("\n").split("\n")[0]
    try:
        found = _scores(subset.scorer, question, answer)
    except (KeyError, IndexError) as error:
        raise ValueError(f"{subset.task}: question {question.id} lacks {error} for its scorer.") from error
    return {name: found[name] for name in subset.qualities}


def code_of(scorer: str) -> tuple[str, ...]:
    """Return the dotted paths of the code that a scorer's scores depend on: this package, and a user's own module."""
    return (__name__.rpartition(".")[0], *(() if scorer in SCORERS else (scorer,)))


def _scores(name: str, question: Question, answer: str) -> Scores:
    if name not in SCORERS:
        return resolved(name, FunctionType)(answer, question)  # type: ignore[no-any-return]
    scorer, references = SCORERS[name], question.references
    if not references:
        raise KeyError("references")
    if scorer.any_of is not None:
        return {"score": scorer.any_of(answer, references)}
    if scorer.classes is not None:
        classes = question.facts["all_classes"]
        if not isinstance(classes, tuple):
            raise KeyError("all_classes")
        return {"score": max(scorer.classes(answer, reference, classes) for reference in references)}
    if scorer.several is not None:
        return max(
            (scorer.several(answer, reference) for reference in references), key=lambda scores: scores["score"] or 0.0
        )
    assert scorer.best is not None
    return {"score": max(scorer.best(answer, reference) for reference in references)}
