"""Runs a server of ours for a moment, without keeper, folder or deployment: what the client is held against."""

import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from seamark.forkserver.client import OUTSIDE
from seamark.load.pinning import pin


@contextmanager
def server_alone(module: str, *arguments: object, cores: Collection[int] = ()) -> Iterator[int]:
    """Run `seamark.servers.null` or `.known` on a free port of loopback, on `cores` where some are named; give the
    port. It ends by SIGTERM, and has written all that it writes when this is left."""
    command = [sys.executable, OUTSIDE, module, "--port", "0", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            pin(process.pid, cores)
            assert process.stdout is not None
            yield int(process.stdout.readline().split()[-1])
        finally:
            process.terminate()
            process.communicate()
