"""Templates of prompts: split into context and question, and filled from a row. Pure."""

import re
from collections.abc import Mapping

_PLACE = re.compile(r"\{([A-Za-z_]\w*)\}")
_CONTEXT = "{context}"


def places(template: str) -> tuple[str, ...]:
    """Return the names of the places of a template, each once, in their order."""
    return tuple(dict.fromkeys(_PLACE.findall(template)))


def parts(template: str) -> tuple[str, str]:
    """Return the template of the context and that of the question.

    The context ends with the last `{context}`: all before it is computed once for all questions of a context. A
    template without it is all question.
    """
    end = template.rfind(_CONTEXT)
    end = 0 if end < 0 else end + len(_CONTEXT)
    return template[:end], template[end:]


def filled(template: str, values: Mapping[str, str]) -> str:
    """Return a template with each `{name}` replaced, once: braces in the values stay, as do braces without a name.

    Raises KeyError with the name of a place that has no value.
    """
    return _PLACE.sub(lambda match: values[match.group(1)], template)
