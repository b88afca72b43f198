"""Names of deployments, workloads and trials: readable, path-safe, derived only from settings that differ from
defaults. Seeds, and seeded orders."""

import hashlib
import re
import unicodedata
import uuid
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from seamark.config.forms.table import is_structured, label_of
from seamark.config.levels import show
from seamark.model.digest import digest
from seamark.model.service import Value
from seamark.model.trial import SCHEMA_VERSION
from seamark.storage.redaction import redacted

NAMESPACE = uuid.UUID("6b0e6c1e-5b0f-5d2c-9d5e-2f6d1c0b7a41")
LONGEST = 64
LONGEST_WORD = 28
DIGEST = 8
UNSPOKEN = ("duration_s", "warmup_s", "timeout_s", "requests", "warmup_items", "limit_s")
"""Settings of duration are part of the hash, but not of the words."""
UNITS = {"nodes": "node", "gpus": "gpu", "cpus_per_task": "cpu", "mem_gb": "gb"}


def part(words: list[str], identity: Mapping[str, Any]) -> str:
    """Return `words-hash`: the words truncated to fit, and a hash of the whole identity and the schema version.

    It contains only letters, digits, '.', '_', '+' and '-', no `--`, and at most LONGEST characters.
    """
    mark = digest({"schema_version": SCHEMA_VERSION, **identity})[:DIGEST]
    slug = ""
    for word in words:
        longer = f"{slug}-{word}" if slug else word
        if len(longer) > LONGEST - DIGEST - 1:
            break
        slug = longer
    return f"{slug or 'x'}-{mark}"


def words_of(values: Mapping[str, Value]) -> list[str]:
    """Return a word for each setting: the value if it is text, else the setting's name and the value."""
    spoken = {name: value for name, value in values.items() if name.rpartition(".")[2] not in UNSPOKEN}
    return [word for name, value in spoken.items() if (word := _word(name, value))]


def word(text: str) -> str:
    """Return text as a part of a path: ASCII letters, digits, '.', '_', '+' and single '-'."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9._+]+", "-", plain).strip("-.")[:LONGEST_WORD].strip("-.")


def trial_uuid(scenario: str, trial_id: str) -> str:
    """Return the UUID of a trial: equal for equal names in the same scenario."""
    return str(uuid.uuid5(NAMESPACE, f"{scenario}/{trial_id}"))


def seed_of(*parts: object) -> int:
    """Return a 32-bit seed that depends on all parts and on nothing else."""
    return int.from_bytes(_sha(*parts)[:4])


def rank(*parts: object) -> bytes:
    """Return a sort key for a seeded random order, which does not change when other elements are added."""
    return _sha(*parts)


def block_order(ids: Iterable[str], seed: int, of: str, block: int, *, balanced: bool = False) -> list[str]:
    """Return ids in a seeded random order, another one in each block (from 1).

    `balanced` blocks are rows of a balanced design in random order, with random places for the ids: in every cycle of
    as many blocks as it has rows each ordered pair of neighbours occurs equally often.
    """
    if not balanced:
        return sorted(ids, key=lambda name: rank(seed, of, block, name))
    from seamark.stats.carry_over import williams, williams_rows  # imports numpy, and few scenarios ask for it

    names = [*ids]
    rows = williams_rows(len(names))
    cycle, turn = divmod(block - 1, rows)
    names.sort(key=lambda name: rank(seed, of, "balanced", cycle, name))
    row = sorted(range(rows), key=lambda number: rank(seed, of, "rows", cycle, number))[turn]
    return [names[number] for number in williams(len(names), row)]


def _sha(*parts: object) -> bytes:
    return hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()


@lru_cache(maxsize=4096, typed=True)
def _word(name: str, value: Value) -> str:
    if redacted(value, name) != value:  # folder names are visible to everyone: the hash distinguishes secrets
        return word(name)
    if name in UNITS:
        return f"{value}{UNITS[name]}"
    name = name.rpartition(".")[2]  # of a leaf
    if isinstance(value, str):
        return word(label_of(name, value) if is_structured(name) else value)
    if value is None:
        return f"{name}-none"
    return f"{name}-{word(show(value).replace('-', 'minus', 1))}"
