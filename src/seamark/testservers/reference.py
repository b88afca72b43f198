"""Command line of the reference server, and its run until SIGTERM or SIGINT."""

import argparse
import asyncio
import contextlib
import gc
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, get_args

from seamark.testservers import behaviour as choices
from seamark.testservers.behaviour import Behaviour
from seamark.testservers.connection import ReferenceConnection
from seamark.testservers.server import ReferenceServer

Kind = TypeVar("Kind", bound=ReferenceServer)
Number = TypeVar("Number", int, float)
FLUSH_S = 1.0
NS = {f"{name}_ms": f"{name}_ns" for name in ("ttft", "gap", "prefill", "tail", "piece")}


def whole(minimum: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from `minimum`."""

    def parse(text: str) -> int:
        if int(text) < minimum:
            raise argparse.ArgumentTypeError(f"{text} is less than {minimum}")
        return int(text)

    return parse


def number(text: str) -> float:
    """Parse a number from 0."""
    if not 0 <= float(text) < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0")
    return float(text)


def count(text: str) -> int | None:
    """Parse a count; 0 means none."""
    return whole(0)(text) or None


def servers(text: str) -> int:
    """Parse a number of servers; none, and an empty text, mean one."""
    return 1 if text.lower() in ("", "none") else whole(1)(text)


def _or_none(parse: Callable[[str], Number]) -> Callable[[str], Number]:
    """Return a parser that takes none, and an empty text, for 0."""
    return lambda text: parse("0" if text.lower() in ("", "none") else text)


def _path(text: str) -> Path | None:
    return None if text == "none" else Path(text)


def _switch(text: str) -> bool:
    """Parse on or off, also as YAML and Python write it."""
    if text.lower() not in ("on", "off", "true", "false"):
        raise argparse.ArgumentTypeError(f"{text} is neither on nor off")
    return text.lower() in ("on", "true")


def shared_options(prog: str, description: str) -> argparse.ArgumentParser:
    """Return a parser of the options that every test server has."""
    options = argparse.ArgumentParser(prog=prog, description=description, allow_abbrev=False)
    add = options.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, required=True, help="0: any; it is printed")
    add("--silent-every", type=count, help="period in requests: one of them is never answered; 0: none")
    add("--reset-every", type=count, help="period in requests: one connection is reset in mid-answer; 0: never")
    add("--error-every", type=count, help="period in requests: one is answered with status 503; 0: never")
    add("--stall-from-s", type=number, default=0.0, help="a stall begins so long after the first request")
    add("--stall-for-s", type=number, default=0.0, help="how long nothing is written then")
    return options


def parser() -> argparse.ArgumentParser:
    """Return the argument parser of the reference server."""
    options = shared_options("reference", "An OpenAI API whose answers, times and faults are known.")
    add = options.add_argument
    add("--truth", type=_path, help="truth file, a JSON line per request; none: no file")
    add("--ttft-ms", type=number, default=0.0, help="from the request to its first token; with a queue, mean service")
    add("--gap-ms", type=number, default=0.0, help="between the chunks")
    add("--prefill-ms", type=_or_none(number), default=0.0, help="for each prompt token that is not in the cache")
    add("--cache-tokens", type=_or_none(whole(0)), default=0, help="tokens that the prefix cache keeps; 0: none")
    add("--chunks", type=count, help="chunks with tokens in a reply; 0: what max_tokens asks for")
    add("--chunk-tokens", type=whole(1), default=1, help="tokens in a chunk")
    add("--first-tokens", type=count, help="tokens in the first chunk; 0: as in the others")
    add("--role-chunk", type=_switch, default=True, help="send a chunk without a token as soon as a request is read")
    add("--early-head", type=_switch, default=True, help="send the head of the reply as soon as a request is read")
    add(
        "--usage",
        choices=get_args(choices.Usage),
        default="asked",
        help="when a stream ends with its usage: on request, always, never, or with wrong counts",
    )
    add("--reasoning-chunks", type=whole(0), default=0, help="number of first chunks of a chat that are reasoning")
    add("--reasoning-field", choices=get_args(choices.ReasoningField), default="reasoning_content")
    add("--tail-ms", type=number, default=0.0, help="from the last token to usage and end mark")
    add("--split", choices=get_args(choices.Split), default="none", help="events in pieces, cut at odd places")
    add("--piece-ms", type=number, default=0.5, help="between those pieces; the last one is in time")
    add("--events-per-write", type=whole(1), default=1, help="events per write")
    add("--line-end", choices=get_args(choices.LineEnd), default="lf", help="how the lines of an event end")
    add("--space", type=_switch, default=True, help="a space after 'data:'")
    add(
        "--empty-every",
        type=count,
        help="period in requests: one is answered with status 200 and no token; 0: never",
    )
    add("--queue", choices=get_args(choices.QueueKind), default="none", help="servers that serve in turn")
    add("--queue-servers", type=servers, default=1, help="number of servers of the queue")
    add("--service-seed", type=int, default=0, help="seed of times of service and of cuts")
    return options


def main(argv: list[str]) -> int:
    """Parse the command line and serve."""
    options = parser()
    arguments: dict[str, Any] = vars(options.parse_args(argv))
    host, port, truth = arguments.pop("host"), arguments.pop("port"), arguments.pop("truth")
    options_ns = {
        NS.get(name, name): round(value * 1e6) if name in NS else value for name, value in arguments.items()
    }
    behaviour = Behaviour(**options_ns)
    if behaviour.queue != "none" and not behaviour.ttft_ns:
        options.error(f"--queue {behaviour.queue} needs --ttft-ms, its mean time of service")
    if behaviour.queue_servers > 1 and behaviour.queue == "none":
        options.error(f"--queue-servers {behaviour.queue_servers} needs --queue mm1 or md1")
    if behaviour.split != "none" and behaviour.events_per_write > 1:
        options.error("--split cuts events into several writes, --events-per-write joins them: use one of both")
    server = run(options, host, port, lambda loop: ReferenceServer(behaviour, loop, truth), ReferenceConnection)
    with contextlib.suppress(OSError):
        print(server.summary_line(), flush=True)
    return 0


def run(
    options: argparse.ArgumentParser,
    host: str,
    port: int,
    make: Callable[[asyncio.AbstractEventLoop], Kind],
    connection: Callable[[Kind], asyncio.Protocol],
) -> Kind:
    """Serve until SIGTERM or SIGINT; return the server. Exits with a message of the command line if it cannot."""

    async def serve() -> Kind:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, ended.set)
        server = make(loop)
        try:
            listening = await loop.create_server(lambda: connection(server), host, port, backlog=4096)
            gc.collect()
            gc.freeze()
            gc.disable()  # no reference cycles here, and a collection would delay writes
            with contextlib.closing(listening):
                print(f"listening on {listening.sockets[0].getsockname()[1]}", flush=True)
                _flush_on(loop, server)
                await ended.wait()
        finally:
            server.close()
        return server

    try:
        import uvloop

        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    except ImportError:
        runner = asyncio.Runner()
    with runner:
        try:
            return runner.run(serve())
        except OSError as error:
            options.error(str(error))


def _flush_on(loop: asyncio.AbstractEventLoop, server: ReferenceServer) -> None:
    """Write the truth file so far, now and every FLUSH_S."""
    if server.journal is not None:
        server.journal.flush()
        loop.call_later(FLUSH_S, _flush_on, loop, server)
