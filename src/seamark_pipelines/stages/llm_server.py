"""A language model behind a server that speaks OpenAI's API: started by the stage that owns it, or already there."""

import http.client
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from seamark.platform.process_tree import die_with_parent, kill_below
from seamark_pipelines.flow.source_names import get_component
from seamark_pipelines.flow.stage import Stage
from seamark_pipelines.model.graph import PipelineModel, StageModel
from seamark_pipelines.model.query import Query
from seamark_pipelines.stages.seeded import place

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "vllm": ("vllm", "serve", "{model}", "--host", "{host}", "--port", "{port}"),
    "ollama": ("ollama", "serve"),
}
FLAGS = ("gpu_memory_utilization", "max_model_len", "dtype")
"""Settings of a server that are flags of vLLM."""
LOOK_S, END_S = 0.2, 1.0


class Inference(Stage):
    """Answers prompts, a text or a list of texts, by the completions of a server; `data` becomes a list of texts.

    - `server` has engine (vllm or ollama), model, host, port (0: a free one), gpu_memory_utilization, max_model_len,
      dtype, launch_args, env, startup_timeout_s; with `api_base` nothing is started. A stage with `depends_on_id`
      uses the server of that one.
    - `concurrency` queries are sent at a time. `model.gen_kwargs` are those of `generate`, `tokenizer_name` is the
      tokenizer of prompts where it is not the model's.
    """

    counts = "token"

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        config = self.extra_config
        self._owner: int | None = config.get("depends_on_id")
        self._server: Mapping[str, Any] = config.get("server") or {}
        self._tokenizer: Any = None
        self._process: subprocess.Popen[bytes] | None = None
        self.base, self.model = base_of(self._server.get("api_base")), place(str(self._server.get("model", "")))
        self._asked = parameters_of((config.get("model") or {}).get("gen_kwargs") or {})
        self._structure = get_component(config["data_model"]) if config.get("data_model") else None
        if self._owner is None and self._server.get("engine", "vllm") not in COMMANDS:
            raise ValueError(f"the engine '{self._server['engine']}' is none of {', '.join(COMMANDS)}")

    def get_tokenizer(self) -> Any:
        """Return the tokenizer of the model."""
        if self._owner is not None:
            return self.dispatch_call(self._owner, "get_tokenizer")
        if self._tokenizer is None:
            from transformers import AutoTokenizer

            self._tokenizer = AutoTokenizer.from_pretrained(
                place(self.extra_config.get("tokenizer_name", self.model))
            )
        return self._tokenizer

    def get_server_handle(self) -> tuple[str, str]:
        """Return the model and the address of the server, such as http://127.0.0.1:8000/v1."""
        return self.model, self.base

    def prepare(self) -> None:
        if self._owner is None and not self.base:
            self._start()

    def pre_run(self) -> None:
        if self._owner is not None:
            self.model, self.base = self.dispatch_call(self._owner, "get_server_handle")

    def run(self, query: Query) -> dict[int, Query]:
        prompts = [query.data] if isinstance(query.data, str) else list(query.data)
        texts = [self._completed(prompt) for prompt in prompts]
        query.data = (
            texts if self._structure is None else [self._structure.model_validate_json(text) for text in texts]
        )
        return super().run(query)

    def post_run(self) -> None:
        """End the server with all its processes; other stages that use it have ended, or fail their queries."""
        if self._process is not None:
            kill_below(self._process.pid, END_S)
            self._process.kill()
            self._process.wait()

    def _completed(self, prompt: str) -> str:
        """Return the completion of a prompt, which the server streams. Raises OSError or ValueError if it fails."""
        at = urlsplit(self.base)
        kind = http.client.HTTPSConnection if at.scheme == "https" else http.client.HTTPConnection
        connection = kind(at.hostname or "", at.port, timeout=self._timeout_s)
        asked = {"model": self.model, "prompt": prompt, "stream": True, "stream_options": {"include_usage": True}}
        try:
            body = json.dumps(asked | self._asked)
            connection.request("POST", f"{at.path}/completions", body, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            if reply.status != 200:
                raise ValueError(f"the server answered {reply.status}: {reply.read(300).decode(errors='replace')}")
            parts: list[str] = []
            tokens, ended = 0, False
            for line in reply:
                event = line.removeprefix(b"data:").strip()
                ended |= event == b"[DONE]"
                if not line.startswith(b"data:") or event == b"[DONE]":
                    continue
                found = json.loads(event)
                if "error" in found:
                    raise ValueError(f"the server said: {found['error']}")
                tokens = int((found.get("usage") or {}).get("completion_tokens", tokens))
                text = "".join(choice.get("text") or "" for choice in found.get("choices") or ())
                if text and not parts:
                    self.first_token()
                parts += [text] if text else []
            if not ended:
                raise ValueError("the server ended its answer in the middle")
        finally:
            connection.close()
        self.count(tokens or len(parts))
        return "".join(parts)

    @property
    def _timeout_s(self) -> float:
        return float(self._server.get("startup_timeout_s", 600))

    def _start(self) -> None:
        """Start the engine and wait until it answers. Raises ValueError if it does not."""
        server, engine = self._server, str(self._server.get("engine", "vllm"))
        host, port = str(server.get("host", "127.0.0.1")), int(server.get("port", 8000)) or free_port()
        program, *words = (word.format(model=self.model, host=host, port=port) for word in COMMANDS[engine])
        if _answers(host, port):
            raise ValueError(f"port {port} is taken by another server: set server.port to 0, a free one")
        path = shutil.which(program)
        if path is None:
            raise ValueError(f"the program '{program}' is not here: install it, or name a server by server.api_base")
        if engine == "vllm":
            words += [f"--{name.replace('_', '-')}={server[name]}" for name in FLAGS if server.get(name) is not None]
        told = {
            **os.environ,
            "OLLAMA_HOST": f"{host}:{port}",
            **{k: str(v) for k, v in (server.get("env") or {}).items()},
        }
        self._process = subprocess.Popen(
            [path, *words, *map(str, server.get("launch_args") or ())], env=told, preexec_fn=die_with_parent
        )
        self.base = f"http://{host}:{port}/v1"
        until_s = time.monotonic() + self._timeout_s
        while self._process.poll() is not None or not _answers(host, port):
            if self._process.poll() is not None:
                raise ValueError(
                    f"'{program}' ended with exit code {self._process.returncode}; its lines are in the log"
                )
            if time.monotonic() > until_s:
                self._process.kill()
                raise ValueError(f"'{program}' did not answer within {self._timeout_s:g} s")
            time.sleep(LOOK_S)
        if engine == "ollama":
            subprocess.run([path, "pull", self.model], env=told, check=True)


def base_of(address: object) -> str:
    """Return the address of an API, with the version that configurations leave out; nothing for none."""
    text = str(address or "").rstrip("/")
    return text if not text or urlsplit(text).path else f"{text}/v1"


def parameters_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of `generate` as the API names them; others go on as they are."""
    found = dict(options)
    if "max_new_tokens" in found:
        found["max_tokens"] = found.pop("max_new_tokens")
    if found.pop("do_sample", None) is False:
        found.setdefault("temperature", 0)
    return found


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", "/v1/models")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
