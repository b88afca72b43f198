"""Prompts of retrieval-augmented generation: what graders, generators and rewriters are asked."""

import copy
from typing import Any, ClassVar

from seamark_pipelines.flow.stage import Stage
from seamark_pipelines.model.query import Query
from seamark_pipelines.stages.routers import question_of

LONGEST_DOCUMENT = 400
"""Characters of a document in the prompt of a rewriter."""


def apply_chat_template_safe(tokenizer: Any, chat: Any, *, enable_thinking: bool = False, **options: Any) -> Any:
    """Return a chat by the tokenizer's template, without a model's thinking; the original benchmark's name for it."""
    return tokenizer.apply_chat_template(chat, enable_thinking=enable_thinking, **options)


def chat(tokenizer: Any, task: str, text: str) -> str:
    """Return a prompt of a task and a text by the tokenizer's template; without one, one after the other."""
    if not getattr(tokenizer, "chat_template", None):
        return f"{task}\n\n{text}\n\n"
    options = {"tokenize": False, "add_generation_prompt": True}
    turns = [{"role": "system", "content": task}, {"role": "user", "content": text}]
    try:
        prompt = apply_chat_template_safe(tokenizer, turns, **options)
    except Exception:  # templates refuse roles as they like
        turns = [{"role": "user", "content": f"{task}\n\n{text}"}]
        prompt = apply_chat_template_safe(tokenizer, turns, **options)
    return str(prompt)


class Formatter(Stage):
    """Makes a prompt of a query, with the tokenizer of the stage `tokenizer_stage_id`."""

    task: ClassVar[str] = ""

    def prepare(self) -> None:
        self._tokenizer = self.dispatch_call(int(self.extra_config["tokenizer_stage_id"]), "get_tokenizer")

    def run(self, query: Query) -> dict[int, Query]:
        query.data = chat(self._tokenizer, self.task, self.asked(query))
        return super().run(query)

    def asked(self, query: Query) -> str:
        """Return what the user says of a query: the documents that were found, and the question."""
        return f"{documents_of(query)}\n\nQuestion: {question_of(query)}"


def texts_of(query: Query) -> list[Any]:
    """Return the documents that were found."""
    found = query.context.get("retrieved_documents") or []
    return list(found) if isinstance(found, (list, tuple)) else [found]


def documents_of(query: Query) -> str:
    """Return the documents that were found, numbered, as one text."""
    return "\n\n".join(f"Document {number}: {text}" for number, text in enumerate(texts_of(query), start=1))


class SQLQueryGeneratorFormatter(Formatter):
    """Asks for the SQL that answers a question, from the tables of the stage `schema_stage_id`."""

    task = "You write SQLite queries. Translate the question into one query for these tables, and output it alone."

    def prepare(self) -> None:
        super().prepare()
        self._tables = self.dispatch_call(int(self.extra_config["schema_stage_id"]), "get_schema")

    def asked(self, query: Query) -> str:
        again = query.context.pop("is_retry", False)
        found = query.data[0] if again and isinstance(query.data, list) else query.data
        tables = "\n".join(sql for _, sql in self._tables)
        return f"Tables:\n{tables}\n\nQuestion: {found if again else question_of(query)}"


class RetrievalGraderFormatter(Formatter):
    """Asks whether what was found has to do with the question."""

    task = "Say whether the documents have to do with the question. Answer yes or no, and nothing else."

    def asked(self, query: Query) -> str:
        query.context["retrieved_documents"] = query.data
        return super().asked(query)


class AnswerGeneratorFormatter(Formatter):
    """Asks for an answer.

    `documents`: `retrieved` (the default), `none`, or `filler`: other words of as many tokens, or of `filler_tokens`
    where none were retrieved, to tell what documents change in an answer from what a longer prompt costs.
    """

    task = "Answer the question from the documents, in a few words."

    def prepare(self) -> None:
        super().prepare()
        self._documents = self.extra_config.get("documents", "retrieved")
        if self._documents not in ("retrieved", "none", "filler"):
            raise ValueError(f"documents: '{self._documents}' is none of retrieved, none, filler")
        if self._documents == "filler":
            self._tokenizer = copy.deepcopy(self._tokenizer)  # which others pad with at the same time

    def asked(self, query: Query) -> str:
        if self._documents == "none":
            return f"Question: {question_of(query)}"
        if self._documents == "filler":
            return f"{self._filler(documents_of(query))}\n\nQuestion: {question_of(query)}"
        return super().asked(query)

    def _filler(self, documents: str) -> str:
        ids = self._tokenizer("\n the" * 8, add_special_tokens=False)["input_ids"]
        length = int(self.extra_config.get("filler_tokens", 0))
        if documents:
            length = len(self._tokenizer(documents, add_special_tokens=False)["input_ids"])
        return str(self._tokenizer.decode((ids * (length // len(ids) + 1))[:length]))


class HallucinationGraderFormatter(Formatter):
    """Asks whether an answer says what no document does. Keeps the answer."""

    task = "Say whether the answer claims anything that the facts do not support: yes or no, and nothing else."

    def asked(self, query: Query) -> str:
        query.context["generated_answer"] = query.data
        return f"Facts:\n{documents_of(query)}\n\nAnswer: {query.data}"


class AnswerGraderFormatter(Formatter):
    """Asks whether an answer resolves the question."""

    task = "Say whether the answer resolves the question: yes or no, and nothing else."

    def asked(self, query: Query) -> str:
        return f"Question: {question_of(query)}\n\nAnswer: {query.context.get('generated_answer')}"


class QuestionRewriterFormatter(Formatter):
    """Asks for the next thing to search for, by question and documents so far."""

    task = (
        "Name what is still missing to answer the question, as one search query. If the documents have nothing to do "
        "with it, word the question in another way. Output the query alone, on one line."
    )

    def asked(self, query: Query) -> str:
        query.context["is_retry"] = True
        known = "\n\n".join(str(text)[:LONGEST_DOCUMENT] for text in texts_of(query)) or "none"
        return f"Question: {question_of(query)}\n\nDocuments so far:\n{known}\n\nNext search query:"


class LLMGeneratorFormatter(Formatter):
    """Asks the question without documents."""

    task = "Answer the question in a few words."

    def asked(self, query: Query) -> str:
        return f"Question: {question_of(query)}"


class MonolithFormatter(Formatter):
    """Asks one model for everything: whether documents fit, the answer, and whether it is supported, as JSON."""

    task = (
        "Judge whether the documents fit the question; answer it from them in a few words, or with an empty text if "
        "they do not fit; then judge whether the answer claims anything that they do not support. Output a JSON "
        'object alone: {"relevance_grade": "yes" or "no", "answer": "...", "hallucination_check": "yes" or "no"}.'
    )
