"""Ephemeral server: runs a server of Seamark's own for the length of a context, without supervisor or deployment."""

import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from seamark.platform.fork_server.client import ISOLATED_MAIN
from seamark.platform.process_tree import pin


class ServerStartError(Exception):
    """A server ended before it listened; what it said is on stderr."""


@contextmanager
def ephemeral_server(
    module: str, *arguments: object, cores: Collection[int] = (), python: Path | None = None
) -> Iterator[int]:
    """Run a module such as `seamark.testservers.null` on a free port of loopback, and yield the port.

    Its interpreter is `python`, None: this one. The server is pinned to `cores`, if any are given. SIGTERM ends it,
    and it has written all its files on return. Raises ServerStartError for one that ends before it listens.
    """
    command = [str(python or sys.executable), ISOLATED_MAIN, module, "--port", "0", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        try:
            pin(process.pid, cores)
            assert process.stdout is not None
            words = process.stdout.readline().split()
            if not words:
                raise ServerStartError(f"{module} ended before it listened, with exit code {process.wait()}")
            yield int(words[-1])
        finally:
            process.terminate()
            process.communicate()
