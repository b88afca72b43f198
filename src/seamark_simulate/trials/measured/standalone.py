"""Models of a server with the standalone API: downloaded, loaded onto GPUs, served, and called, by HTTP.

docs/how-to-simulate.md has the contract. The server decides what a load replaces: a model that is loaded onto GPUs
takes the place of what they hold, so a switch is a load too.
"""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from seamark.errors import UserError
from seamark_simulate.simulation.system import Model
from seamark_simulate.trials.measured.json_call import ServerAddress
from seamark_simulate.trials.measured.model_servers import ModelError, NodeCall


@dataclass(frozen=True, kw_only=True)
class _Held:
    """A served model: its id at the server, and its GPUs."""

    id: str
    model: str
    gpus: tuple[int, ...]


class StandaloneServers:
    """One server of the standalone API, and what it holds on each GPU."""

    def __init__(self, url: str) -> None:
        """Raises UserError for a wrong URL."""
        self._url = url
        self._server = ServerAddress.of(url, "--model-server")
        self._held: dict[int, _Held] = {}
        self._lock = threading.Lock()
        self._not_there: dict[str, ModelError] = {}

    def prepare(self, models: Sequence[Model], limit_s: float) -> None:
        """Download every model. Raises UserError where no server of this API listens."""
        for model in models:
            try:
                self._post("download", {"model": model.id, "name": model.name}, limit_s)
            except ModelError as error:
                if error.category == "server_died":
                    raise UserError(
                        f"--model-server {self._url}: no answer ({error.reason}). Start the server of the standalone"
                        " API there or name its address; servers that bench starts: `bench simulate --execution"
                        " measure --servers FILE`."
                    ) from None
                if "status 404" in error.reason:
                    raise UserError(
                        f"--model-server {self._url}: the server there has not the standalone API ({error.reason})."
                        " docs/how-to-simulate.md lists its endpoints."
                    ) from None
                self._not_there[model.id] = error

    def estimate_s(self, call: NodeCall, limit_s: float) -> float | None:
        """Return the server's estimate of a call, None for none."""
        request = {"model": call.model.id, "input": dict(call.inputs), "config": dict(call.config)}
        try:
            value = self._post("estimate", request, limit_s).get("estimated_time")
        except ModelError:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return float(value) if math.isfinite(value) and value >= 0 else None

    def bring(self, model: Model, gpus: tuple[int, ...], limit_s: float) -> bool:
        """Load and serve a model, unless it is served on these GPUs."""
        if error := self._not_there.get(model.id):
            raise ModelError("setup_failed", error.reason, emptied=False)
        held = self._held.get(gpus[0])
        if held is not None and (held.model, held.gpus) == (model.id, gpus):
            return False
        self._forget(gpus)
        try:
            loaded = self._post("load", {"model": model.id, "gpus": list(gpus)}, limit_s)
            id = _text(loaded, "id", "load")
            self._post("serve", {"id": id}, limit_s)
        except ModelError as error:
            raise ModelError(error.category, error.reason, emptied=True) from None
        with self._lock:
            self._held.update(dict.fromkeys(gpus, _Held(id=id, model=model.id, gpus=gpus)))
        return True

    def call(self, call: NodeCall, gpus: tuple[int, ...], limit_s: float) -> str:
        """Call the model on its GPUs."""
        request = {"input": dict(call.inputs), "config": dict(call.config)}
        try:
            reply = self._post(f"call/{quote(self._held[gpus[0]].id, safe='')}", request, limit_s)
        except ModelError as error:
            if error.emptied:
                self._forget(gpus)
            raise
        return _text(reply, "output", "call")

    def close(self) -> None:
        """Leave the server as it is: it was not started here."""

    def _post(self, endpoint: str, document: dict[str, Any], limit_s: float) -> dict[str, Any]:
        return self._server.post(f"/standalone/{endpoint}", document, limit_s)

    def _forget(self, gpus: tuple[int, ...]) -> None:
        """Note that GPUs hold nothing, nor do other GPUs of models on them."""
        with self._lock:
            gone = [self._held[gpu] for gpu in gpus if gpu in self._held]
            for gpu in {*gpus, *(gpu for held in gone for gpu in held.gpus)}:
                self._held.pop(gpu, None)


def _text(document: dict[str, Any], key: str, endpoint: str) -> str:
    """Return a text of a reply. Raises ModelError where there is none."""
    value = document.get(key)
    if not isinstance(value, str):
        raise ModelError("call_failed", f"POST /standalone/{endpoint}: the reply has no text '{key}'")
    return value
