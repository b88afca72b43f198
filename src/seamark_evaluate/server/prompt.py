"""The tokens of a request: those of its context, which several questions share, and those of its question."""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from seamark_evaluate.server.chat import with_template
from seamark_evaluate.server.errors import CONTEXT_TOO_LONG, RequestError, wrong
from seamark_evaluate.server.request import Completion
from seamark_evaluate.server.truncation import truncated


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """Tokens of a context and of a question after it, which has at least one; `cut` were taken from the context."""

    context: tuple[int, ...]
    question: tuple[int, ...]
    cut: int = 0

    @property
    def tokens(self) -> int:
        """The number of all tokens."""
        return len(self.context) + len(self.question)


def read_prompt(tokenizer: Any, completion: Completion, *, vocabulary: int, max_model_len: int) -> Prompt:
    """Return the tokens of a request, the context shortened to what fits.

    Context and question are tokenized as one text, so a split changes no token; a token across their border belongs
    to the question. Raises RequestError where the question and its answer alone exceed `max_model_len`, for tokens
    that the model does not know, and as `truncated`.
    """
    context, question = _tokens(tokenizer, completion, vocabulary)
    if not question:
        raise wrong("question: it has no tokens. Give a text in 'question', or in 'prompt'.")
    left = max_model_len - len(question) - completion.max_tokens
    if left < 0:
        raise RequestError(
            400,
            CONTEXT_TOO_LONG,
            f"question: {len(question)} tokens and an answer of {completion.max_tokens} exceed the model's "
            f"{max_model_len}. Only contexts are shortened: lower 'max_tokens', or raise --max-model-len.",
        )
    most = completion.max_context_tokens
    kept = truncated(context, left if most is None else min(left, most), completion.truncate)
    return Prompt(context=tuple(kept), question=tuple(question), cut=len(context) - len(kept))


def _tokens(tokenizer: Any, completion: Completion, vocabulary: int) -> tuple[list[int], list[int]]:
    if completion.prompt_ids is not None:
        ids = list(completion.prompt_ids)
        if ids and not 0 <= min(ids) <= max(ids) < vocabulary:
            raise wrong(f"prompt: the model knows the token ids 0 to {vocabulary - 1}.")
        return [], ids
    context, question = completion.context, completion.question
    begin = first_special(tokenizer)
    if completion.chat_template:
        begin = []  # the template writes it
        context, question = with_template(tokenizer, context, question)
    text = context + question + completion.answer_prefix
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids = list(encoding["input_ids"])
    if not completion.context:
        return [], begin + ids
    ends, end = [], 0
    for _, token_end in encoding["offset_mapping"]:
        end = max(end, token_end)  # a token that is part of a character may have no length
        ends.append(end)
    border = bisect_right(ends, len(context))
    return begin + ids[:border], ids[border:]


def first_special(tokenizer: Any) -> list[int]:
    """Return the token with which the tokenizer begins every text, if there is one."""
    special = list(tokenizer.encode("", add_special_tokens=True))
    return special[:1] if special and special[0] == tokenizer.bos_token_id else []
