"""Streams as servers with the OpenAI API word them, drawn from a seed; what a reader who parses everything says."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

Json = dict[str, Any]

TEXTS = (
    " hello",
    " the",
    "\n",
    '"',
    "\\",
    '\\"',
    '","text":"',
    '"}]}\n\ndata: {"choices":[{"text":"',
    " naïve",
    "語",
    "🦭",
    "\u2028",
    "[DONE]",
    "{",
    " ",
    "\r\n\r\n",
    "x" * 300,
)
CREATED_S = 1_790_000_000


@dataclass(frozen=True)
class Draw:
    """One reply: its choices, and what its server was asked and is used to."""

    random: Random
    choices: int
    tokens: int
    usage: str
    chat: bool

    def text(self) -> str:
        return "" if self.random.random() < 0.08 else self.random.choice(TEXTS)

    def counts(self, choices: int = 1) -> Json:
        prompt, completion = self.random.randrange(1, 2000), self.tokens * choices
        return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}


def vllm(draw: Draw) -> Iterator[Json]:
    """A chunk a choice and step; the last has text and an end; a usage by itself, in each chunk if asked. Others that
    word it so have a usage in the last chunk of each choice."""
    random, chat = draw.random, draw.chat
    kind = "chat.completion.chunk" if chat else "text_completion"
    base = {"id": f"cmpl-{random.getrandbits(128):032x}", "object": kind, "created": CREATED_S, "model": "a/b-7b"}
    reasons, calls, ids = random.random() < 0.3, random.random() < 0.2, random.random() < 0.2
    spare = {} if chat else {"usage": None}
    for choice in range(draw.choices) if chat else ():
        said = {"role": "assistant", "content": ""}
        yield {**base, "choices": [{"index": choice, "delta": said, "logprobs": None, "finish_reason": None}]}
    for step in range(draw.tokens):
        last = step == draw.tokens - 1
        for choice in range(draw.choices):
            text = draw.text()
            if not chat:
                said: Json = {"text": text}
            elif calls and step > draw.tokens // 2:
                call = {"function": {"name": "look"} if text else {"arguments": text}, "index": 0, "type": "function"}
                said = {"delta": {"tool_calls": [call]}}
            else:
                said = {"delta": {"reasoning_content" if reasons and step < 3 else "content": text}}
            end = {"finish_reason": "length" if last else None, **({"stop_reason": None} if last or not chat else {})}
            given = {"token_ids": [random.randrange(32000)]} if ids else {}
            whole = {**base, "choices": [{"index": choice, **said, "logprobs": None, **end, **given}], **spare}
            if draw.usage == "each" or (draw.usage == "last" and last):
                whole["usage"] = {"prompt_tokens": 9, "total_tokens": 10 + step, "completion_tokens": step + 1}
            yield whole
    if draw.usage in ("end", "each"):
        yield {**base, "choices": [], "usage": draw.counts(draw.choices)}


def sglang(draw: Draw) -> Iterator[Json]:
    """Every field in every chunk, null where it says nothing; the end in a chunk of its own."""
    base = {"id": f"{draw.random.getrandbits(128):032x}", "object": "chat.completion.chunk", "created": CREATED_S}
    told = draw.random.randrange(3)
    for step in range(-1, draw.tokens + 1):
        delta = {"role": None, "content": None, "reasoning_content": None, "tool_calls": None}
        if step == -1:
            delta |= {"role": "assistant", "content": ""}
        elif step < draw.tokens:
            delta["reasoning_content" if step < told else "content"] = draw.text()
        end = "length" if step == draw.tokens else None
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": end, "matched_stop": None}
        yield {**base, "model": "m", "choices": [choice], "usage": None}
    if draw.usage != "none":
        yield {**base, "model": "m", "choices": [], "usage": draw.counts() | {"reasoning_tokens": 0}}


def llama_cpp(draw: Draw) -> Iterator[Json]:
    """What varies comes last, and the time with every chunk; a completion's last chunk has usage and timings."""
    random = draw.random
    second = 0
    timings = {"prompt_n": 1, "predicted_ms": random.random() * 1e3}

    def chunk(choices: list[Json], **more: Any) -> Json:
        kind = "chat.completion.chunk" if draw.chat else "text_completion"
        tail = {"model": "m.gguf", "system_fingerprint": "b6000-abc", "object": kind}
        return {"choices": choices, "created": CREATED_S + second, **tail, "id": f"chatcmpl-{random.random()}"} | more

    if draw.chat:
        delta: Json = {"role": "assistant", "content": None}
        yield chunk([{"finish_reason": None, "index": 0, "delta": delta}])
    for _ in range(draw.tokens):
        second += random.random() < 0.2
        if draw.chat:
            yield chunk([{"finish_reason": None, "index": 0, "delta": {"content": draw.text()}}])
        else:
            yield chunk([{"text": draw.text(), "index": 0, "logprobs": None, "finish_reason": None}])
    if draw.chat:
        yield chunk([{"finish_reason": "stop", "index": 0, "delta": {}}])
        if draw.usage != "none":
            yield chunk([], usage=draw.counts(), timings=timings)
    else:
        end = {"text": "", "index": 0, "logprobs": None, "finish_reason": "length"}
        yield chunk([end], usage=draw.counts(), timings=timings)


def tgi(draw: Draw) -> Iterator[Json]:
    """A role with every text, the time with every chunk, and an end that comes with the last text."""
    second = 0
    for step in range(draw.tokens):
        second += draw.random.random() < 0.2
        last = step == draw.tokens - 1
        head = {"id": "", "created": CREATED_S + second, "model": "m", "system_fingerprint": "3.3-native"}
        if draw.chat:
            delta = {"role": "assistant", "content": draw.text()}
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": "length" if last else None}
            yield {"object": "chat.completion.chunk", **head, "choices": [choice], "usage": None}
        else:
            choice = {"index": 0, "text": draw.text(), "logprobs": None, "finish_reason": "length" if last else ""}
            end = {"usage": draw.counts()} if last else {}
            yield {"object": "text_completion", **head, "choices": [choice], **end}
    if draw.chat and draw.usage != "none":
        yield {"object": "chat.completion.chunk", **head, "choices": [], "usage": draw.counts()}


def openai(draw: Draw) -> Iterator[Json]:
    """Padding against guesses of lengths at the end of each chunk; several choices in one event."""
    random = draw.random
    base = {"id": f"chatcmpl-{random.getrandbits(64):x}", "object": "chat.completion.chunk", "created": CREATED_S}
    refuses = random.random() < 0.1
    for step in range(-1, draw.tokens + 1):
        choices = []
        for index in range(draw.choices):
            delta: Json = {} if step == draw.tokens else {"refusal" if refuses else "content": draw.text()}
            if step == -1:
                delta = {"role": "assistant", "content": "", "refusal": None}
            end = "stop" if step == draw.tokens else None
            choices.append({"index": index, "delta": delta, "logprobs": None, "finish_reason": end})
        padding = "".join(random.choices("abcXYZ019", k=random.randrange(12)))
        yield {**base, "service_tier": "default", "choices": choices, "usage": None, "obfuscation": padding}
    if draw.usage != "none":
        yield {**base, "service_tier": "default", "choices": [], "usage": draw.counts(), "obfuscation": ""}


SERVERS: dict[str, Callable[[Draw], Iterator[Json]]] = {
    "vllm": vllm,
    "sglang": sglang,
    "llama_cpp": llama_cpp,
    "tgi": tgi,
    "openai": openai,
}


@dataclass
class Stream:
    """A reply on the wire. `content` and `said`: offsets of the last bytes of events with tokens, and all JSON.
    `answers`: which of those events have a text that is no reasoning."""

    wire: bytes
    closes: bool = False
    content: list[int] = field(default_factory=list)
    answers: list[bool] = field(default_factory=list)
    said: list[Json] = field(default_factory=list)

    def answered_after(self, received: int) -> bool:
        return any(answers for at, answers in zip(self.content, self.answers, strict=True) if at <= received)

    def events_after(self, received: int) -> int:
        return sum(at <= received for at in self.content)

    @property
    def usage(self) -> tuple[int | None, int | None]:
        """Tokens of the prompts and of the reply as the server counted them, for all choices."""
        by_choice: dict[int, Json] = {}
        total = None
        for document in self.said:
            usage, choices = document.get("usage"), document["choices"]
            if usage and not choices:
                total = usage
            elif usage:
                by_choice[choices[0]["index"]] = usage
        told = [total] if total else list(by_choice.values())
        if not told:
            return None, None
        return sum(each["prompt_tokens"] for each in told), sum(each["completion_tokens"] for each in told)


def has_token(document: Json) -> bool:
    """Say whether an event carries a token, the plain way."""
    for choice in document["choices"]:
        delta = choice.get("delta", {})
        texts = [
            choice.get("text"),
            *(delta.get(k) for k in ("content", "reasoning_content", "reasoning", "refusal")),
        ]
        for call in delta.get("tool_calls") or []:
            texts += [call["function"].get("name"), call["function"].get("arguments")]
        if any(texts) or choice.get("token_ids"):
            return True
    return False


def has_answer(document: Json) -> bool:
    """Say whether an event has a text that is no reasoning, the plain way."""
    bare = json.loads(json.dumps(document))
    for choice in bare["choices"]:
        choice.pop("token_ids", None)
        for name in ("reasoning_content", "reasoning"):
            choice.get("delta", {}).pop(name, None)
    return has_token(bare)


def stream(server: str, random: Random) -> Stream:
    """Draw a reply of that server: its length, framing, spacing and what lies between its events."""
    draw = Draw(
        random=random,
        choices=random.choice([1, 1, 1, 3]),
        tokens=random.choice([1, 2, 5, 12]),
        usage=random.choice(["end", "end", "each", "last", "none"]),
        chat=random.random() < 0.5,
    )
    end = random.choice([b"\n\n", b"\n\n", b"\n\n", b"\r\n\r\n", b"\r\n\r\n", b"\r\r"])
    colon = random.choice([b"data: ", b"data: ", b"data:"])
    loose, ascii_only = random.random() < 0.2, random.random() < 0.5
    found = Stream(wire=b"")
    events: list[tuple[bytes, bool]] = []
    for document in SERVERS[server](draw):
        spaces = (", ", ": ") if loose else (",", ":")
        text = json.dumps(document, separators=spaces, ensure_ascii=ascii_only).encode()
        found.said.append(document)
        if random.random() < 0.03:
            events.append((b": ping" + end, False))
        if loose and random.random() < 0.2:
            text = text.replace(b", ", b"," + end[: len(end) // 2] + colon, 1)
        begin = b"event: message" + end[: len(end) // 2] if random.random() < 0.03 else b""
        events.append((begin + colon + text + end, has_token(document)))
        if has_token(document):
            found.answers.append(has_answer(document))
    events.append((colon + b"[DONE]" + end, False))
    _frame(found, events, random)
    return found


def _frame(found: Stream, events: list[tuple[bytes, bool]], random: Random) -> None:
    framing = random.choice(["chunk", "chunk", "chunk", "merged", "cut", "sized", "close"])
    if random.random() < 0.05:
        events[0] = b"\xef\xbb\xbf" + events[0][0], events[0][1]
    ends, body = [], b""
    for data, carries in events:
        body += data
        if carries:
            ends.append(len(body) - data.endswith(b"\r\n"))  # a line ends with its \r, whatever follows
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    if framing == "sized":
        head += b"content-length: %d\r\n\r\n" % len(body)
    elif framing == "close":
        head += b"connection: close\r\n\r\n"
    if framing in ("sized", "close"):
        found.wire, found.closes = head + body, framing == "close"
        found.content = [len(head) + at for at in ends]
        return
    if framing == "cut":
        cuts = sorted({random.randrange(1, len(body)) for _ in range(len(events))} | {len(body)})
    else:
        cuts, at = [], 0
        for data, _ in events:
            at += len(data)
            if framing == "chunk" or random.random() < 0.3 or at == len(body):
                cuts.append(at)
    wire, start, place = head + b"transfer-encoding: chunked\r\n\r\n", 0, 0
    upper = random.random() < 0.2
    for cut in cuts:
        wire += (b"%X\r\n" if upper else b"%x\r\n") % (cut - start)
        while place < len(ends) and ends[place] <= cut:
            found.content.append(len(wire) + ends[place] - start)
            place += 1
        wire += body[start:cut] + b"\r\n"
        start = cut
    found.wire = wire + b"0\r\n\r\n"


def reads(wire: bytes, random: Random) -> Iterator[bytes]:
    """Cut bytes into reads: one, few, at the ends of lines, or anywhere."""
    way = random.choice(["one", "few", "lines", "many"])
    if way == "one":
        cuts = []
    elif way == "lines":
        cuts = [at + 2 for at in range(len(wire) - 2) if wire[at : at + 2] == b"\r\n" and random.random() < 0.7]
    else:
        cuts = sorted({random.randrange(1, len(wire)) for _ in range(3 if way == "few" else len(wire) // 20)})
    for start, stop in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        if stop > start:
            yield wire[start:stop]
