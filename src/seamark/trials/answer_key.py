"""Whether the answer key of a trial has changed: what its answers were scored against. Scores nothing."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from seamark.model.items import key_digest
from seamark.model.results.answers import AnswersRecord
from seamark.model.service import Value
from seamark.storage.documents import regular
from seamark.storage.paths import TrialFolder


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
