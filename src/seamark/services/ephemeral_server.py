"""Ephemeral server: runs a test server for the length of a context, without supervisor or deployment."""

import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from seamark.platform.fork_server.client import ISOLATED_MAIN
from seamark.platform.pinning import pin


@contextmanager
def ephemeral_server(module: str, *arguments: object, cores: Collection[int] = ()) -> Iterator[int]:
    """Run `seamark.testservers.null` or `.reference` on a free port of loopback and yield the port.

    The server is pinned to `cores`, if any are given. SIGTERM ends it, and it has written all its files on return.
    """
    command = [sys.executable, ISOLATED_MAIN, module, "--port", "0", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            pin(process.pid, cores)
            assert process.stdout is not None
            yield int(process.stdout.readline().split()[-1])
        finally:
            process.terminate()
            process.communicate()
