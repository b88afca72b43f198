"""The answer key of a trial's questions: references and facts that its answers were scored against, and whether they
have changed since. Scores nothing."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from seamark.drivers.questions import file_at_hand
from seamark.errors import UserError
from seamark.model.results.answers import AnswersRecord
from seamark.model.service import Value
from seamark.storage.codec import encode
from seamark.storage.documents import regular
from seamark.storage.paths import TrialFolder
from seamark.tasks.question_files import read_questions
from seamark.tasks.task import item_id, task_of_document


def key_has_changed(settings: Mapping[str, Value], folder: TrialFolder, record: AnswersRecord) -> bool:
    """Return whether the answers of a trial were scored against another key than that of today. False where that is
    not known, as of older files: then the scores stay as they are."""
    if record.key_sha256 is None:
        return False
    try:
        kept = pq.read_table(regular(folder.answers), columns=["item", "id"])
    except (OSError, ValueError, pa.ArrowException):
        return False
    ids = dict(zip(kept["item"].to_pylist(), kept["id"].to_pylist(), strict=True))
    return key_digest(settings, ids) not in (None, record.key_sha256)


def key_digest(settings: Mapping[str, Value], ids: Mapping[int, str]) -> str | None:
    """Return the digest of the references and facts of some items, which have these ids, in any order. None where
    that is not known: no task of a benchmark, data that are not at hand, or another question by now."""
    try:
        benchmark, subset = task_of_document(json.loads(str(settings.get("task"))))
        path = file_at_hand(settings)
        asked = _keys(path, benchmark.task(subset)) if path is not None else ()
    except (UserError, OSError, ValueError, TypeError, KeyError):
        return None
    if not ids or max(ids) >= len(asked) or any(asked[item][0] != text for item, text in ids.items()):
        return None
    return sha256("".join("".join(each) for each in sorted(asked[item] for item in ids)).encode()).hexdigest()


@lru_cache(maxsize=1024)
def _keys(path: Path, task: str) -> Sequence[tuple[str, str]]:
    """Return the id of each question of a file, and a digest of its references and facts. The file is read once:
    changed data are another file."""
    return [
        (item_id(task, each), sha256(json.dumps([encode(each.references), encode(each.facts)]).encode()).hexdigest())
        for each in read_questions(path)
    ]
