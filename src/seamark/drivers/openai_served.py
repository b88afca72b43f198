"""Which model a server with the OpenAI API names, asked before a load."""

import json
import ssl
from collections.abc import Mapping
from urllib.parse import SplitResult

from seamark.drivers.openai import authorization
from seamark.errors import UserError
from seamark.load.fetch import FetchError, fetch
from seamark.model.service import Value
from seamark.platform.tls import said

MODELS_S = 10.0
"""How long the question takes at most, all of it."""
LONGEST_NAME = 1000


def first_model(url: SplitResult, settings: Mapping[str, Value], tls: ssl.SSLContext | None, limit_s: float) -> str:
    """Return the first model of `/models`, asked within `limit_s` and MODELS_S.

    Raises UserError: why there is none.
    """
    path = f"{str(settings['base_path']).rstrip('/')}/models"
    models, key, limit_s = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{path}", "", min(MODELS_S, limit_s)
    headers = authorization(settings)
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        reply = fetch(url.hostname or "", port, path, limit_s=limit_s, headers=headers, tls=tls)
        if 200 <= reply.status < 300:
            return _named(reply.body)
        why = f"HTTP {reply.status}"
        key = " It wants a key: --set api_key_env=NAME." if reply.status in (401, 403) else ""
    except TimeoutError:
        why = f"no whole answer in {limit_s:g} s"
    except FetchError as error:
        why = str(error)
    except OSError as error:
        why = " ".join(said(error).split())
    except (ValueError, LookupError, TypeError, RecursionError):
        why = "its answer is no list of models"
    raise UserError(f"{models}: the server names no model ({why}).{key} Say which with --model, if this is its API.")


def _named(body: bytes) -> str:
    """Return the name in a list of models. Raises ValueError, LookupError, TypeError or RecursionError."""
    name = json.loads(body)["data"][0]["id"]
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
        raise ValueError("no name")
    return name
