"""A chat template around a context and a question, without marks in the text: rendered, then split at the content."""

from collections.abc import Callable
from typing import Any

from seamark_evaluate.server.errors import wrong


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
