"""The tokens of a request: those of its context, which several questions share, and those of its question; chat
templates around both, and contexts longer than a limit."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from seamark_evaluate.server.errors import CONTEXT_TOO_LONG, RequestError, wrong
from seamark_evaluate.server.request import Completion, Truncate


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
    special = list(tokenizer.encode("", add_special_tokens=True))  # one with which it begins every text, or ends it
    begin = special[:1] if special and special[0] == tokenizer.bos_token_id else []
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


def truncated(ids: Sequence[int], limit_tokens: int, how: Truncate) -> list[int]:
    """Return at most `limit_tokens` of a context's tokens; of one token the first.

    `middle` keeps `limit_tokens // 2` tokens of each end, so one fewer than an odd limit, as LongBench, LooGLE and
    the program for yarn-mistral of InfiniteBench do. Those for LongBench v2 and for GPT-4 of InfiniteBench keep one
    token more at the end for an odd limit (`[-max_len // 2 :]`), so give an even one. All of them cut the whole
    prompt; here the context alone is cut, so a question is never lost. Raises RequestError where `how` is `error`.
    """
    if len(ids) <= limit_tokens:
        return list(ids)
    if how == "error":
        raise RequestError(
            400,
            CONTEXT_TOO_LONG,
            f"context: {len(ids)} tokens, of which {limit_tokens} fit. "
            "Shorten it, or set 'truncate' to 'middle' or 'end'.",
        )
    if how == "end" or limit_tokens < 2:  # of one token there are no two ends
        return list(ids[:limit_tokens])
    half = limit_tokens // 2
    return [*ids[:half], *ids[len(ids) - half :]]


def with_template(tokenizer: Any, context: str, question: str) -> tuple[str, str]:
    """Return context and question as the tokenizer's chat template writes them into one message of a user.

    The text before the message belongs to the context, that after it to the question. The message is found in the
    rendered text; where it occurs several times, its place is where the rest is what the template makes of an empty
    message. White space that the template strips from both ends of a message is not in the result. Raises
    RequestError for a tokenizer without a template, a message without text, and a template that changes texts.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise wrong("chat_template: this model's tokenizer has none. Set 'chat_template' to false.")
    content = context + question
    if not content.strip():
        raise wrong("question: it has no text. A chat template needs one.")
    rendered = _render(tokenizer, content)
    start = len(content) - len(content.lstrip())
    for first, last in ((0, len(content)), (start, start + len(content.strip()))):
        at = _place(rendered, content[first:last], lambda: _render(tokenizer, ""))
        if at is not None:
            border = min(max(len(context), first), last)
            after = rendered[at + last - first :]
            return rendered[:at] + content[first:border], content[border:last] + after
    raise wrong("chat_template: this model's template changes the text of a message, so it cannot be split.")


def _render(tokenizer: Any, content: str) -> str:
    messages = [{"role": "user", "content": content}]
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def _place(rendered: str, text: str, empty: Callable[[], str]) -> int | None:
    """Return where `text` begins in `rendered`, None if that cannot be known."""
    at = rendered.find(text)
    if at < 0 or rendered.find(text, at + 1) < 0:
        return at if at >= 0 else None
    rest = empty()
    while at >= 0:
        if rendered[:at] + rendered[at + len(text) :] == rest:
            return at
        at = rendered.find(text, at + 1)
    return None
