"""Task that has another tool send the load of a trial: its call, its files, and its requests converted into samples.

What differs between tools is a method of each: its command line, and the requests in its results.
"""

import json
import os
import re
import shutil
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

from seamark.config.secrets import resolve
from seamark.drivers.command import STDERR, WORK, Command, end_of, last_lines
from seamark.drivers.openai.models import TINY
from seamark.drivers.openai.prompts import WORDS
from seamark.errors import UserError
from seamark.load.driver import Target, TaskFailure, TaskRecorder
from seamark.load.engine.http import in_url
from seamark.model.harness import ROOT
from seamark.model.load_profile import LoadProfile
from seamark.model.sample import Failure
from seamark.model.service import Value
from seamark.platform.process_tree import become_subreaper, kill_below

NATIVE, CALL = "native.json", "call.json"
"""Kept files of a tool: its own results, and how it was called."""
READINGS = 20
"""Of the tool's clock and ours."""
UNKNOWN = "<unk>"
LONGEST_SEED = 1 << 31
OFFLINE: Mapping[str, str] = {
    "CUDA_VISIBLE_DEVICES": "",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONPATH": "",
    "PYTHONUNBUFFERED": "1",  # so that the log of a tool that is ended has its last line
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Variables of every tool: a load needs no GPU, downloads nothing, and has the packages of its environment alone."""


@dataclass(frozen=True, kw_only=True)
class NativeRequest:
    """One request in the results of a tool. Times are in seconds of the tool's clock.

    `due_s` is when an open loop meant to send it, None where the tool does not say; `first_s` is its first token,
    None without one. `failed` is what the tool says of a failure, None for a good reply. A failure whose time the
    tool does not say ends when it was sent.
    """

    sent_s: float
    end_s: float
    due_s: float | None = None
    first_s: float | None = None
    tokens: int = 0
    failed: str | None = None


class Tool(Command):
    """One run of a tool against the server of the target. The tool's own end decides nothing: the trial fails where
    it left no request, and else is judged by its requests."""

    unit = "token"
    kinds: Sequence[str] = ("request",)
    name: ClassVar[str]
    """As in the setting `harness`."""
    keeps: ClassVar[Sequence[str]] = (NATIVE,)
    """Patterns of the files that are kept with the results."""

    def __init__(self, target: Target) -> None:
        settings = {key: value for key, value in target.settings.items() if key not in (ROOT, "limit_s")}
        self._target = target
        self.settings: Mapping[str, Value] = settings
        self.load = LoadProfile.of(settings)
        self.root = str(target.settings.get(ROOT))
        self.model = str(settings.get("served_model") or settings.get("model") or "model")

    def now_s(self) -> float:
        """Return the time by the clock of its results, in seconds."""
        raise NotImplementedError

    @abstractmethod
    def command(self, work: Path, seed: int) -> list[str]:
        """Return the command line, which is to leave NATIVE in the folder `work`, where it runs; write the files
        there that it reads. `seed` is below LONGEST_SEED."""

    def requests(self, native: Any) -> list[NativeRequest]:
        """Return the requests of its results, in any order. Raises LookupError, TypeError or ValueError for those of
        another form."""
        raise NotImplementedError

    def convert(self, work: Path, recorder: TaskRecorder) -> int:
        """Record the requests of its results in the folder `work`; return their number."""
        found = self._found(work / NATIVE)
        if found:
            record(found, recorder, self.load, begun_s=started_s(self.now_s, recorder.now_ns))
        return len(found)

    def run(self, recorder: TaskRecorder, stop: Event) -> None:
        """Run the tool, keep its files, record its requests. Raises TaskFailure for a tool that left none."""
        become_subreaper()
        place = Path(tempfile.mkdtemp(prefix=f"{self.name}-", dir=self._target.data))
        work = place / WORK
        work.mkdir()
        self._peak_bytes = 0
        try:
            argv = self.command(work, recorder.seed % LONGEST_SEED)
            words = [_escaped(word) for word in argv]
            self._written = {"argv": words, "environment": self._environment(), "keep": self.keeps}
            code = self._end_of(place, stop)
            self._keep(place, recorder.folder)
            call = {"harness": self.name, "root": self.root, "argv": argv, "code": code}
            (recorder.folder / CALL).write_text(json.dumps(call, indent=1), encoding="utf-8")
            if not self.convert(work, recorder):
                why = f"{self.name} {end_of(code)} before it recorded a request{last_lines(place / STDERR)}"
                raise TaskFailure("program_failed", why)
        except UserError as error:  # lengths that no prompt has, or a key that is not there
            raise TaskFailure("setup_failed", str(error)) from None
        finally:
            kill_below(os.getpid())
            shutil.rmtree(place, ignore_errors=True)

    @property
    def url(self) -> str:
        """The address of the server."""
        port = next(self._target.ports[name] for name in ("http", "main") if name in self._target.ports)
        return f"http://{in_url(self._target.host)}:{port}"

    @property
    def count(self) -> int:
        """Number of requests: that of the settings, of an open loop at most those that are due in its length."""
        wanted, rate_rps = self.load.requests, self.load.parameters.get("rate_rps")
        if self.load.closed or rate_rps is None or (self.load.until_last_reply and wanted):
            return wanted or 1
        due = max(1, round(float(rate_rps) * self.load.length_s))
        return due if wanted is None else min(wanted, due)

    def tokenizer(self, work: Path) -> str:
        """Return the tokenizer for prompts: that of the settings, else of the model; for a server without a model one
        of common words, written into `work`."""
        if named := self.settings.get("tokenizer"):
            path = Path(str(named)).expanduser().absolute()
            return str(path.parent if path.is_file() else path)
        model = self.settings.get("model")
        if model is None:
            write_words(work / "tokenizer")
            return str(work / "tokenizer")
        if model == TINY:
            return str(self._target.data / TINY)
        path = Path(str(model)).expanduser()
        return str(path.absolute()) if path.is_dir() else str(model)

    def _found(self, native: Path) -> list[NativeRequest]:
        if not native.exists():
            return []
        try:
            return self.requests(json.loads(native.read_text(encoding="utf-8")))
        except (LookupError, TypeError, ValueError) as error:
            why = f"the results of {self.name} have another form: {type(error).__name__}: {error}"
            raise TaskFailure("wrong_record", why) from None

    def _environment(self) -> dict[str, str]:
        """Return the tool's variables. A key goes this way alone, so that no file and no list of processes has it."""
        direct = {"NO_PROXY": self._target.host, "no_proxy": self._target.host}
        own = {**OFFLINE, **direct, "HF_DATASETS_CACHE": str(self._target.data / "datasets")}
        if name := self.settings.get("api_key_env"):
            own["OPENAI_API_KEY"] = resolve(f"env:{name}")
        return {name: _escaped(text) for name, text in own.items()}


def _escaped(text: str) -> str:
    """Return a text without placeholders for a Command, which fills them."""
    return text.replace("{", "{{").replace("}", "}}")


def write_words(folder: Path) -> None:
    """Write a tokenizer in the form of Hugging Face whose tokens are Seamark's common words, so that a prompt has as
    many words as tokens."""
    vocabulary = {word: number for number, word in enumerate((UNKNOWN, *dict.fromkeys(WORDS)))}
    special = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": 0, "content": UNKNOWN, **special, "special": True}],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": UNKNOWN},
    }
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": UNKNOWN, "model_max_length": 10_000_000}
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def started_s(now_s: Callable[[], float], now_ns: Callable[[], int]) -> float:
    """Return the start of the Task by the tool's clock `now_s`; `now_ns` counts from it.

    A process that waits for a core between both readings finds an earlier start, so the latest of several counts.
    """
    return max(now_s() - now_ns() / 1e9 for _ in range(READINGS))


def record(requests: Sequence[NativeRequest], recorder: TaskRecorder, load: LoadProfile, *, begun_s: float) -> None:
    """Record a tool's requests as samples, the load beginning with the first that was due.

    `begun_s` is the start of the Task by the tool's clock. In a closed loop a request is due when it is sent. A reply
    that took longer than `load.timeout_s` counts as timed out then, as in Seamark's own loads, whatever the tool
    thinks of it. The load ends with its last request, but at a constant rate lasts as long as planned. Raises OSError
    (no space).
    """
    due_s = [request.sent_s if load.closed or request.due_s is None else request.due_s for request in requests]
    due_s = [min(due, request.sent_s) for due, request in zip(due_s, requests, strict=True)]
    first_due_s = min(due_s)
    recorder.began_ns = max(0, round((first_due_s - begun_s) * 1e9))
    rate_rps = load.parameters.get("rate_rps") if load.pattern == "constant" else None
    recorder.ran_out = rate_rps is None or len(requests) < round(float(rate_rps) * load.length_s)
    order = sorted(range(len(requests)), key=due_s.__getitem__)
    for index, at in enumerate(order):
        request = requests[at]
        times_s = (due_s[at], request.sent_s, max(request.sent_s, request.end_s))
        due_ns, sent_ns, last_ns = (_ns(time_s - first_due_s) for time_s in times_s)
        failure, status = (Failure.NONE, 200) if request.failed is None else failure_of(request.failed)
        if last_ns - sent_ns > load.timeout_s * 1e9:
            failure, last_ns = Failure.TIMEOUT, sent_ns + round(load.timeout_s * 1e9)
        first_ns = None if request.first_s is None else max(sent_ns, _ns(request.first_s - first_due_s))
        recorder.sample(
            index,
            due_ns=due_ns,
            sent_ns=sent_ns,
            first_ns=None if first_ns is None or first_ns > last_ns else first_ns,
            last_ns=last_ns,
            units=request.tokens,
            status=status,
            failure=failure,
        )


def _ns(time_s: float) -> int:
    """Return a time in ns, to a whole us: seconds since 1970 have steps of 0.24 us."""
    return round(time_s * 1e6) * 1000


_PHRASES = {status.phrase: status.value for status in HTTPStatus if status >= HTTPStatus.BAD_REQUEST}
_STATUS = re.compile(r"error '([45]\d\d)\b")
_SIGNS: tuple[tuple[re.Pattern[str], Failure], ...] = (
    (re.compile("Never received a valid chunk"), Failure.EMPTY_REPLY),
    (re.compile("[Cc]ancel"), Failure.CANCELLED),
    (re.compile("Timeout|[Tt]imed out"), Failure.TIMEOUT),
    (re.compile("ConnectError|ConnectorError|ConnectionRefused"), Failure.CONNECT),
    (re.compile("Disconnected|ConnectionReset|OSError|PayloadError|(Read|Write|RemoteProtocol)Error"), Failure.RESET),
    (re.compile("JSONDecodeError"), Failure.PROTOCOL),
)
"""Names of exceptions of aiohttp and httpx, and words of the tools."""


def failure_of(said: str) -> tuple[Failure, int]:
    """Return category and HTTP status (0: none) of what a tool says of a failed request: the reason phrase of a
    status (`vllm bench serve`), or an exception's text or traceback. DRIVER where it tells nothing."""
    line = said.strip().rpartition("\n")[2]  # of a traceback the exception, not its lines of code
    match = _STATUS.search(line)
    status = int(match[1]) if match else _PHRASES.get(line, 0)
    if status:
        return (Failure.SERVER_ERROR if status >= HTTPStatus.INTERNAL_SERVER_ERROR else Failure.CLIENT_ERROR), status
    return next((failure for sign, failure in _SIGNS if sign.search(line)), Failure.DRIVER), 0
