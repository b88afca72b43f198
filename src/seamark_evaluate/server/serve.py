"""The server's life: a model loaded and tried, then requests answered until SIGTERM or SIGINT."""

import asyncio
import contextlib
import gc
import signal
import sys
from collections.abc import Callable

from seamark_evaluate.server.arguments import Arguments, read_arguments
from seamark_evaluate.server.engine import Engine
from seamark_evaluate.server.errors import StartError
from seamark_evaluate.server.http import Api
from seamark_evaluate.server.model import load

BACKLOG = 1024


def main(argv: list[str]) -> int:
    """Serve; return 0 after a signal, 1 for a model that cannot be served, with its category and one line."""
    arguments = read_arguments(argv)
    try:
        model = load(arguments)
    except StartError as error:
        print(f"{error.code}: {error}", file=sys.stderr, flush=True)
        return 1
    gc.collect()
    gc.freeze()  # the model stays: collections need not look at it
    engine = Engine(model, prefill_chunk=arguments.prefill_chunk)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(serve(engine, arguments))
    except OSError as error:
        print(f"--host {arguments.host} --port {arguments.port}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


async def serve(engine: Engine, arguments: Arguments) -> None:
    """Listen until a signal comes. Raises OSError for an address that cannot be had."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    api = Api(engine=engine, served_model=arguments.served_model)
    try:
        server = await asyncio.start_server(api.connected, arguments.host, arguments.port, backlog=BACKLOG)
        with contextlib.closing(server):
            print(f"listening on {server.sockets[0].getsockname()[1]}", flush=True)
            await ended.wait()
    finally:
        await loop.run_in_executor(None, engine.close)  # results of its last pass still come to this loop


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop
    return None
