"""Servers with the OpenAI API on slots, one for each GPU of a run: started, called and stopped as the policy decides.

A server is started by the supervisor that starts those of trials, and lies beside the persistent ones
(`bench servers ps`). Slot i is GPU i: with GPUs, a server sees those of its window alone; without, slots are numbers.
"""

import contextlib
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seamark.dispatch.placement import Place
from seamark.model.results.deployment_record import Endpoint
from seamark.services.persistent.instance import STANDING, Instance
from seamark.services.persistent.request import ValidatedRequest, new_folder
from seamark.services.supervisor import deployment as supervised
from seamark.storage.documents import write
from seamark_simulate.simulation.system import Model
from seamark_simulate.trials.measured.json_call import ServerAddress
from seamark_simulate.trials.measured.model_servers import ModelError, NodeCall
from seamark_simulate.trials.measured.served_models import make_environment

RENEW_S = 1.0
DEATH_SHOWS_S = 2.0
"""A supervisor notices the death of its server within a tick; a busy machine may take longer."""
CLOSE_S = 60.0
DEFAULT_TOKENS = 16
LENGTHS = ("max_tokens", "max_length", "max_new_tokens")
"""Options of a node that say how long its reply may be."""


@dataclass(frozen=True, kw_only=True)
class _Slot:
    """A server that was started: its files, model, GPUs, and endpoint once it answers."""

    instance: Instance
    model: str
    gpus: tuple[int, ...]
    endpoint: Endpoint | None = None


class SlotServers:
    """The servers of one run. A thread renews their leases, so that they end soon after this process, however it
    ends."""

    def __init__(self, models: Mapping[str, ValidatedRequest]) -> None:
        self._models = models
        self._held: dict[int, _Slot] = {}
        self._open: dict[Path, _Slot] = {}
        self._instances: list[Instance] = []
        self._starting = 0
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def prepare(self, models: Sequence[Model], limit_s: float) -> None:
        """Make the environments that servers need and that are missing, and begin to renew leases: neither is part of
        a load. Raises UserError and SiteError where an environment cannot be made; images were required before."""
        for model in models:
            make_environment(self._models[model.id])
        threading.Thread(target=self._renew, name="leases", daemon=True).start()

    def estimate_s(self, call: NodeCall, limit_s: float) -> float | None:
        """Return none: the OpenAI API has no estimates."""
        return None

    def bring(self, model: Model, gpus: tuple[int, ...], limit_s: float) -> bool:
        """Start a server of the model, after those that have a GPU of its window have ended."""
        held = self._held.get(gpus[0])
        if held is not None and (held.model, held.gpus) == (model.id, gpus):
            if supervised.alive(held.instance.folder):
                return False
            self._end(held, "ended")
        with self._lock:
            others = {slot.instance.root: slot for gpu in gpus if (slot := self._held.get(gpu)) is not None}
        for other in others.values():
            self._end(other, "switch")
        self._start(model, gpus)
        return True

    def call(self, call: NodeCall, gpus: tuple[int, ...], limit_s: float) -> str:
        """Return the text of a completion."""
        slot = self._held[gpus[0]]
        assert slot.endpoint is not None
        ports, wanted = slot.endpoint.ports, self._models[slot.model]
        settings = wanted.request.settings
        address = ServerAddress(
            host=slot.endpoint.host or "",
            port=next(ports[name] for name in ("http", "main") if name in ports),
            base=f"/{str(settings.get('base_path') or '/v1').strip('/')}",
        )
        try:
            body = completion_request(call, {**wanted.deployment.settings, **settings})
            return _text(address.post("/completions", body, limit_s))
        except ModelError as error:
            raise self._judged(slot, error) from None

    def close(self) -> None:
        """End every server, those that start included, and write their records."""
        self._closed.set()
        until_s = time.monotonic() + CLOSE_S
        while time.monotonic() < until_s:
            with self._lock:
                left, starting = list(self._open.values()), self._starting
            if not left and not starting:
                break
            for slot in left:
                if supervised.stop(slot.instance.folder, "stop") and slot.endpoint is not None:
                    self._forget(slot)
            time.sleep(0.02)
        for instance in self._instances:
            with contextlib.suppress(OSError):
                instance.settle()

    def _start(self, model: Model, gpus: tuple[int, ...]) -> None:
        wanted = self._models[model.id]
        results = wanted.study.results / STANDING
        with self._lock:
            if self._closed.is_set():
                raise ModelError("interrupted", "The run has ended.", emptied=True)
            self._starting += 1
        try:
            name = re.sub(r"[^A-Za-z0-9._]+", "-", f"measure-{model.id}-gpu{gpus[0]}")
            instance = Instance(root=new_folder(results, name))
            write(instance.request, replace(wanted.request, id=instance.id))
            slot = _Slot(instance=instance, model=model.id, gpus=gpus)
            with self._lock:
                self._open[instance.root] = slot
                self._instances.append(instance)
            endpoint = supervised.serve_planned(
                wanted.study,
                STANDING,
                replace(wanted.deployment, id=instance.id),
                wanted.study.site,
                instance.folder,
                place=Place(gpus=gpus),
                evict=False,
            )
            slot = replace(slot, endpoint=endpoint)
            if not endpoint.ok or self._closed.is_set():
                self._end(slot, "failed" if not self._closed.is_set() else "stop")
                last = f" Its last line: {endpoint.log_tail[-1]}" if endpoint.log_tail else ""
                reason = f"{endpoint.reason or 'The run has ended.'}{last}"
                raise ModelError(endpoint.category or "interrupted", reason, emptied=True)
            with self._lock:
                self._open[instance.root] = slot
                self._held.update(dict.fromkeys(gpus, slot))
        except OSError as error:
            raise ModelError("setup_failed", f"{error.filename}: {error.strerror}", emptied=True) from None
        finally:
            with self._lock:
                self._starting -= 1

    def _end(self, slot: _Slot, why: str) -> None:
        """End a server and wait until its processes are gone."""
        supervised.stop(slot.instance.folder, why)
        self._forget(slot)

    def _forget(self, slot: _Slot) -> None:
        with self._lock:
            self._open.pop(slot.instance.root, None)
            for gpu in [gpu for gpu, held in self._held.items() if held.instance.root == slot.instance.root]:
                del self._held[gpu]

    def _judged(self, slot: _Slot, error: ModelError) -> ModelError:
        """Return the failure of a call as it is known after a look at the server; one that hangs is ended."""
        folder = slot.instance.folder
        until_s = time.monotonic() + (0.0 if error.category == "timeout" else DEATH_SHOWS_S)
        while error.emptied and supervised.alive(folder) and time.monotonic() < until_s:
            time.sleep(0.02)
        if self._closed.is_set():
            return ModelError("interrupted", "The run has ended.", emptied=True)
        if not supervised.alive(folder):
            end = supervised.why_ended(folder)
            self._end(slot, "ended")
            return ModelError("server_died", (end.reason if end else None) or error.reason, emptied=True)
        if error.category == "server_died":  # the connection broke, and the server lives
            return ModelError("call_failed", error.reason)
        if error.emptied:
            self._end(slot, "failed")
        return error

    def _renew(self) -> None:
        while not self._closed.wait(RENEW_S):
            with self._lock:
                slots = list(self._open.values())
            for slot in slots:
                with contextlib.suppress(OSError):
                    supervised.renew(slot.instance.folder)


def completion_request(call: NodeCall, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a completion for a node. The length of the reply is that of the node's options, else of the
    settings of the server's calls, else the model's mean number of tokens, else 16."""
    lengths = [call.config.get(name) for name in LENGTHS]
    lengths += [settings.get("gen_tokens"), call.model.token_mean and round(call.model.token_mean), DEFAULT_TOKENS]
    body: dict[str, Any] = {
        "model": settings.get("served_model") or settings.get("model") or call.model.id,
        "prompt": call.prompt or " ",
        "max_tokens": next(length for length in lengths if type(length) is int and length > 0),
        "stream": False,
    }
    temperature = call.config.get("temperature", settings.get("temperature"))
    return body if type(temperature) not in (int, float) else {**body, "temperature": temperature}


def _text(reply: Mapping[str, Any]) -> str:
    """Return the text of a completion. Raises ModelError where there is none."""
    choices = reply.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    text = first.get("text") if isinstance(first, dict) else None
    if not isinstance(text, str):
        raise ModelError("call_failed", "POST /completions: the reply has no text")
    return text
