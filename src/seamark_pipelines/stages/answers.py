"""Structured answers of a language model: the likeliest of the few that a pydantic model allows."""

import enum
import itertools
import json
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel


class Score(BaseModel):
    """A verdict of a grader."""

    score: bool


class RouterAnswer(BaseModel):
    """Where a question is answered."""

    index_backend: Literal["sqlite", "llm"]


def texts_of(model: type[BaseModel]) -> list[str]:
    """Return each answer that a model allows, as JSON. Raises ValueError for a field of any value."""
    values: list[Sequence[Any]] = []
    for name, field in model.model_fields.items():
        kind: Any = field.annotation
        if kind is bool:
            values.append((True, False))
        elif get_origin(kind) is Literal:
            values.append(get_args(kind))
        elif isinstance(kind, type) and issubclass(kind, enum.Enum):
            values.append([member.value for member in kind])
        else:
            text = f"the field '{name}' of {model.__name__} may have any value"
            raise ValueError(f"{text}. Give it a type of few values: bool, Literal or an Enum")
    names = list(model.model_fields)
    return [json.dumps(dict(zip(names, chosen, strict=True))) for chosen in itertools.product(*values)]
