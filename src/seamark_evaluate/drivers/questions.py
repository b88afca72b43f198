"""Questions of a task, sent to a server of language models: its requests, and the scores of its answers.

The server attention gets context, question and method apart. Any other one with the OpenAI API gets the whole prompt.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from seamark.drivers.openai.driver import OpenAi, compact
from seamark.drivers.openai.kept import KeptReply, read_kept
from seamark.drivers.openai.models import TINY, write_tiny
from seamark.drivers.openai.models import lacking as lacking_model
from seamark.errors import UserError
from seamark.load.driver import Body, Hooks, Judged, Target, TaskFailure, whole
from seamark.model import service
from seamark.storage.paths import expanded
from seamark_evaluate.attention.method import read_method, with_weights_at
from seamark_evaluate.tasks.benchmark import Question, Subset, Value, at, item_id, task_of_document
from seamark_evaluate.tasks.loading import category_of
from seamark_evaluate.tasks.question_files import CACHE, question_file, question_path, read_questions, require_lengths
from seamark_evaluate.tasks.scoring.table import score

METHOD = ("method", "sparse_from", "kernel", "chat_template", "truncate", "max_context_tokens", "measure_error_ratio")
"""Settings that the server attention takes with each request."""
OPTIONS = ("model_options", "tokenizer_options")
"""Settings that the server attention takes at its start, each a JSON object. A wrong one is found before that."""
KNOWN_READER, RANDOM = "known_reader", "random"
"""Models that are made here: one whose answers are known, and one of random weights with the same words."""
LIMIT_RATIO = 0.9
"""Share of `timeout_s` after which the server attention itself ends an answer, so that its failure has a category."""
NVIDIA = Path("/dev/nvidiactl")
"""There where NVIDIA's driver works."""
KEYS, LONGEST = 128, 16_384
"""Keys of the task `needles` that both know, and the longest prompt and answer in tokens unless a setting says."""
FIGURES = {
    "density": "density_mean",
    "output_error": "output_error_mean",
    "kv_bytes_read": "kv_bytes_read",
    "context_tokens": "context_tokens",
    "context_tokens_cut": "context_tokens_cut",
    "context_reused": "context_reused",
}
"""Qualities beside the scores, each with its field in the replies of the server attention."""


class Questions(OpenAi):
    """Each question of the setting `task` once; those on one context follow each other."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        if not target.settings.get("ignore_eos"):
            self._fields.pop("ignore_eos", None)  # an answer ends where the model ends it
        self._drawn_from = target.settings.get("sampling_seed")
        self._task = str(target.settings["task"])
        self._loaded = _loading(target.settings)
        require_lengths(_task(self._task), *self._loaded[1:])  # also where the data are not there yet
        self._apart = "method" in target.settings
        self._scope = ""
        self._limit_s = LIMIT_RATIO * target.load.timeout_s
        for name in OPTIONS:
            _require_options(name, target.settings.get(name))
        self.kinds = ("question",)
        self.work_count = len(self._asked)
        numbers = {
            cluster: number
            for number, cluster in enumerate(dict.fromkeys(question.cluster for question in self._asked))
        }
        self.work_groups = [numbers[question.cluster] for question in self._asked]

    @cached_property
    def _asked(self) -> Sequence[Question]:
        try:
            return _questions(self._task, *self._loaded)
        except UserError as error:
            if _task(self._task).source.kind == "made":
                raise
            raise TaskFailure(category_of(error), str(error)) from None  # data of others may come before the run
        except OSError as error:  # a file that is there, or the cache of questions
            raise TaskFailure("filesystem_error", str(error)) from None

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return the first questions. The seed changes none of them: a task has its own, `task_seed`. It names the
        load, so that no context that another trial has left in the server is reused, and decides what is drawn."""
        self._scope = str(seed)
        return [Body(content=question) for question in self._asked[:count]]

    def item_ids(self) -> Sequence[str]:
        """Return the id of each question, which has a digest of its prompt."""
        task = _task(self._task).task
        return [item_id(task, question) for question in self._asked]

    def encode(self, body: Body) -> bytes:
        """Return the request of a question."""
        question: Question = body.content
        published = question.max_new_tokens
        limit = min(published, whole(self._settings, "max_new_tokens", published))
        self.most_units = max(self.most_units, limit)
        stops = {"stop": list(question.stop)} if question.stop else {}
        fields = {**self._fields, "max_tokens": limit, **stops, **self._seed(question)}
        return self._request(compact(self._said({**fields, **self._asking(question)})))

    def _seed(self, question: Question) -> Mapping[str, Any]:
        """Return the field `seed`: of the setting `sampling_seed` and the trial, and of the question where the server
        is not known to mix its prompt in. 31 bits, which any server takes."""
        if self._drawn_from is None:
            return {}
        parts = (str(self._drawn_from), self._scope, *(() if self._apart else (question.id, question.prompt)))
        mixed = sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).digest()
        return {"seed": int.from_bytes(mixed[:4]) >> 1}

    def _asking(self, question: Question) -> Mapping[str, Any]:
        if self._apart:
            parts = {name: getattr(question, name) for name in ("context", "question", "answer_prefix")}
            return {**parts, **self._methods, "context_scope": self._scope, "limit_s": self._limit_s}
        if self._endpoint == "chat":  # a beginning of the answer is no part of what the user says
            return {"messages": [{"role": "user", "content": question.context + question.question}]}
        return {"prompt": question.prompt}

    @cached_property
    def _methods(self) -> Mapping[str, Any]:
        """Fields of the method, without those that are not set."""
        given = {name: self._settings.get(name) for name in METHOD}
        fields = {name: value for name, value in given.items() if value is not None and name != "method"}
        if fields.get("chat_template") and not _task(self._task).chat:
            fields["chat_template"] = False  # its published program leaves the template out
        if not given["method"]:
            return fields
        document = json.loads(str(given["method"]))  # the server works in another folder than the study
        return {**fields, "attention": with_weights_at(document, lambda name: str(expanded(name).resolve()))}


def _require_options(name: str, text: service.Value) -> None:
    """Raise UserError for a setting that is no JSON object."""
    try:
        good = text is None or isinstance(json.loads(str(text) or "{}"), dict)
    except ValueError:
        good = False
    if not good:
        example = '\'{"revision": "main"}\''
        raise UserError(f"{name}: {text!r} is no JSON object. Write one as a text: {name}: {example}")


def _loading(settings: Mapping[str, service.Value]) -> tuple[int, int | None, int | None]:
    """Return seed, number and length in words of a task's questions; None: as the benchmark says."""

    def given(name: str) -> int | None:
        return None if settings.get(name) is None else whole(settings, name)

    return whole(settings, "task_seed", 0), given("max_requests"), given("length_words")


@lru_cache(maxsize=256)
def _task(text: str) -> Subset:
    return task_of_document(json.loads(text))


def _questions(text: str, seed: int, limit: int | None, length_words: int | None) -> Sequence[Question]:
    cache = CACHE.expanduser()
    return _read(question_file(_task(text), seed=seed, limit=limit, length_words=length_words, cache=cache), limit)


@lru_cache(maxsize=64)
def _read(path: Path, limit: int | None) -> Sequence[Question]:
    """Return the questions of a file, which is read once: changed data are another file."""
    return read_questions(path, limit)


def asked_of(settings: Mapping[str, service.Value]) -> Sequence[Question]:
    """Return the questions of a trial by the number of their items. Raises UserError for data that is not there."""
    return _questions(str(settings["task"]), *_loading(settings))


def file_at_hand(settings: Mapping[str, service.Value]) -> Path | None:
    """Return the file of a trial's questions; None where they would have to be made or loaded from the hub first.
    Raises UserError for data that is not there."""
    subset = _task(str(settings["task"]))
    seed, limit, length_words = _loading(settings)
    find = question_file if subset.source.kind in ("file", "folder") else question_path
    path = find(subset, seed=seed, limit=limit, length_words=length_words, cache=CACHE.expanduser())
    return path if path.exists() else None


def stage(target: Target, seed: int) -> Mapping[str, service.Value]:
    """Write the models that are made here: the known reader, a random model of its words, or the tiny one."""
    name = str(target.settings.get("model"))
    folder, longest = target.data / name, whole(target.settings, "max_model_len", LONGEST)
    if name == TINY:
        return write_tiny(folder, seed)
    if name not in (KNOWN_READER, RANDOM):
        return {}
    from seamark_evaluate.attention.known_reader import write_known_reader, write_random_model  # needs torch

    if name == KNOWN_READER:
        write_known_reader(folder, keys=KEYS, max_length=longest)
    else:
        write_random_model(folder, seed=seed, keys=KEYS, max_length=longest)
    return {"model_bytes": sum(path.stat().st_size for path in folder.iterdir())}


def lacking(settings: Mapping[str, service.Value]) -> Iterator[tuple[str, str]]:
    """Yield the model's folder, the data of the task and the device that are not on this machine."""
    yield from lacking_model(settings)
    try:
        file_at_hand(settings)
    except (UserError, OSError) as error:
        yield "task", f"{error}"
    device = str(settings.get("device"))
    if device.startswith("cuda") and not NVIDIA.exists():
        yield "device", f"'{device}': this machine has no NVIDIA GPU that can be used. Write auto or cpu."


def judge(target: Target, items: Sequence[int], replies: Sequence[bytes]) -> Judged:
    """Return the scores of answers by the scorer of their task, the server's own figures, and the facts of each
    question. A reply that is not good has no scores. Raises ValueError for an item without a question."""
    subset, every = _task(str(target.settings["task"])), asked_of(target.settings)
    asked = {item: at(subset.task, every, item) for item in items}
    ids = [item_id(subset.task, asked[item]) for item in items]
    kept = [read_kept(reply) for reply in replies]
    rows = [
        {} if reply.text is None else score(subset, asked[item], reply.text)
        for item, reply in zip(items, kept, strict=True)
    ]
    scores = {name: [row.get(name) for row in rows] for name in subset.qualities}
    figures = {name: [_figure(reply, field) for reply in kept] for name, field in FIGURES.items()}
    figures["context_was_cut"] = [None if cut is None else float(cut > 0) for cut in figures["context_tokens_cut"]]
    halved = [_is_halved(reply, target.settings) for reply in kept]
    if any(halved):
        figures["prefill_chunk_halved"] = halved
    if target.settings.get("kernel") == "masked" and _is_sparse(target.settings.get("method")):
        figures["speed_not_of_method"] = [1.0] * len(kept)
    named = dict.fromkeys(name for item in items for name in asked[item].facts)
    facts = {name: [_plain(asked[item].facts.get(name)) for item in items] for name in named}
    least: list[str | float | None] = [_least_density(reply) for reply in kept]
    if any(density is not None for density in least):
        facts["least_layer_density"] = least
    return Judged(
        scores=scores
        | {name: column for name, column in figures.items() if any(value is not None for value in column)},
        ids=ids,
        asked=ids,
        clusters=[asked[item].cluster for item in items],
        finish=[reply.finish for reply in kept],
        errors=[reply.error for reply in kept],
        answers=[reply.text for reply in kept],
        facts=facts,
    )


def _is_sparse(method: service.Value) -> bool:
    return method is not None and not read_method(json.loads(str(method)), "method").is_dense


def _is_halved(reply: KeptReply, settings: Mapping[str, service.Value]) -> float | None:
    """Return 1 for an answer whose prompt was computed by less at a time than the setting says, as the device had too
    little memory; None where this is not known."""
    chunk, wanted = _figure(reply, "prefill_chunk"), settings.get("prefill_chunk")
    return None if chunk is None or wanted is None else float(chunk < whole(settings, "prefill_chunk"))


def _least_density(reply: KeptReply) -> float | None:
    """Return the density of the layer that read the least of what it might have, in question or answer."""
    by_phase = reply.facts.get("density")
    every = [density for layers in by_phase.values() for density in layers] if isinstance(by_phase, dict) else []
    return min(every, default=None)


def _figure(reply: KeptReply, place: str) -> float | None:
    value = reply.facts.get(place)
    return float(value) if isinstance(value, (int, float)) else None


def _plain(value: Value) -> str | float | None:
    """Return a fact as one value of a column; of several texts none."""
    return value if value is None or isinstance(value, (str, int, float)) else None


HOOKS = Hooks(stage=stage, lacking=lacking)
