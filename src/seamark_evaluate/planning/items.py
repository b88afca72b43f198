"""Questions of a trial's task, for plans and scores: how many there are, what their publisher computes, their key."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import Any

from seamark.errors import UserError
from seamark.model.items import ItemCount
from seamark.model.service import Value
from seamark.storage.codec import encode
from seamark_evaluate.drivers.questions import file_at_hand
from seamark_evaluate.tasks.benchmark import Subset, item_id, task_of_document
from seamark_evaluate.tasks.loading import rows_of
from seamark_evaluate.tasks.question_files import CACHE, question_of, questions, read_questions
from seamark_evaluate.tasks.scoring.published import published_figures


class Questions:
    """Questions of the setting `task`: an `ItemSource`."""

    counted_by = ("task", "max_requests")

    def count(self, settings: Mapping[str, Value]) -> ItemCount | None:
        """Return the number of questions of a task, of which `max_requests` are asked, and of their contexts. Data in
        a file or folder are counted; None for data of the hub, and for data that are not there yet."""
        if not settings.get("task"):
            return None
        subset = task_of_document(json.loads(str(settings["task"])))
        asked = settings.get("max_requests")
        limit = asked if isinstance(asked, int) else None
        if subset.source.kind == "hub":
            return None
        if subset.source.kind == "made" and subset.length_words is not None:  # as many as are asked, of long contexts
            count = limit or subset.questions
            if not count:
                return None
            return ItemCount(items=count, contexts=-(-count // _of_one_context(subset)))
        with suppress(UserError, OSError):
            found = questions(subset, limit=limit, cache=CACHE.expanduser())
            return ItemCount(items=len(found), contexts=len({question.cluster for question in found}))
        return None

    def published(
        self,
        settings: Mapping[str, Value],
        scores: Mapping[str, Sequence[float | None]],
        facts: Mapping[str, Sequence[Any]],
    ) -> Mapping[str, float]:
        """Return the figures of a task as its benchmark publishes them; none without a task."""
        try:
            subset = task_of_document(json.loads(str(settings.get("task"))))
        except (ValueError, TypeError, KeyError):  # none, or a setting of the same name in a recipe of the user's own
            return {}
        return published_figures(subset.task, subset.scorer, scores, facts)

    def key_digest(self, settings: Mapping[str, Value], ids: Mapping[int, str]) -> str | None:
        """Return the digest of the references and facts of some questions, in any order. None where that is not
        known: no task, data that are not at hand, or another question now."""
        try:
            subset = task_of_document(json.loads(str(settings.get("task"))))
            path = file_at_hand(settings)
            asked = _keys(path, subset.task) if path is not None else ()
        except (UserError, OSError, ValueError, TypeError, KeyError):
            return None
        if not ids or max(ids) >= len(asked) or any(asked[item][0] != text for item, text in ids.items()):
            return None
        return sha256("".join("".join(pair) for pair in sorted(asked[item] for item in ids)).encode()).hexdigest()


QUESTIONS = Questions()


def _of_one_context(subset: Subset) -> int:
    """Return how many questions the first made context has: all have as many."""
    rows = rows_of(subset, seed=0, length_words=None)
    made = (question_of(subset, row, number).cluster for number, row in enumerate(rows))
    first = next(made)
    return 1 + sum(1 for _ in takewhile(lambda cluster: cluster == first, made))


@lru_cache(maxsize=1024)
def _keys(path: Path, task: str) -> Sequence[tuple[str, str]]:
    """Return the id of each question of a file, and a digest of its references and facts. The file is read once:
    changed data are another file."""
    return [
        (
            item_id(task, question),
            sha256(json.dumps([encode(question.references), encode(question.facts)]).encode()).hexdigest(),
        )
        for question in read_questions(path)
    ]
