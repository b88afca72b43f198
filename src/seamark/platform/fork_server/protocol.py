"""Addresses and messages between a client and its fork server: one request, then lines in return.

The address lies in the abstract namespace, so nothing is left on disk; both sides verify each other's user by the
kernel. Every job of every trial imports this, so it avoids typing, pathlib and hashlib.
"""

import json
import os
import socket
import struct
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
LENGTH = struct.Struct("!Q")
CREDENTIALS = struct.Struct("3i")
READ_AT_IMPORT = ("OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "BLIS_", "NUMEXPR_", "LD_", "CUDA_", "MALLOC_")
"""Prefixes of environment variables that libraries read while they are imported."""
DEVICE = "SEAMARK_DEVICE"
"""Environment variable of every process of a lane's unit: the device that they are kept to, as JSON."""
FILES = 3
"""Standard input, output and error, passed with every request."""


def name_of(owner: int, kind: str) -> str:
    """Return the name of the fork server of that kind for the run of process `owner`. Raises ProcessLookupError if
    that is gone. Two kinds may share a name in rare cases: a request names its kind."""
    return f"seamark-{os.getuid()}-{owner}-{start_of(owner)}-{zlib.crc32(kind.encode()):08x}"


def start_of(pid: int) -> str:
    """Return the start of a process in ticks since boot: with its id it identifies the process uniquely. Raises
    ProcessLookupError if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state, *rest = file.read().rpartition(")")[2].split()
    except OSError as error:
        raise ProcessLookupError(f"no process {pid}") from error
    if state in "ZX":
        raise ProcessLookupError(f"process {pid} has ended")
    return str(rest[18])


def kind_of(python: str, preload: "Sequence[str]", environment: "Mapping[str, str]") -> str:
    """Return the identity of a fork server within a run: interpreter, package, preloaded modules, and environment
    variables read at import."""
    read = [f"{name}={value}" for name, value in sorted(environment.items()) if name.startswith(READ_AT_IMPORT)]
    return " ".join([python, PACKAGE, *preload, *read])


def address(name: str) -> str:
    """Return the address of the fork server of that name."""
    return f"\0{name}"


def function_of(target: str) -> "Callable[..., object]":
    """Return the function `module:function`."""
    import importlib

    module, _, name = target.partition(":")
    function: Callable[..., object] = getattr(importlib.import_module(module), name)
    return function


def is_ours(connection: socket.socket) -> bool:
    """Return whether the process at the other end belongs to this user: an abstract address is open to all."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return bool(CREDENTIALS.unpack(credentials)[1] == os.getuid())


def send(connection: socket.socket, request: "Mapping[str, Any]", files: "Sequence[int]") -> None:
    """Send a request and the three files of the requested process.

    A request has: `kind` of the server; `target`, `module:function`, and its `arguments`; `folder` and `environment`
    of the process; its CPUs (`affinity`), None for the server's; `orphan_signal`, sent to the process when its client
    is gone.
    """
    body = json.dumps(request).encode()
    socket.send_fds(connection, [LENGTH.pack(len(body))], list(files))
    connection.sendall(body)


def receive(connection: socket.socket) -> "tuple[dict[str, Any], list[int]]":
    """Return a request and its three files. Raises EOFError if the client closed the connection."""
    head, files, _, _ = socket.recv_fds(connection, LENGTH.size, FILES, socket.MSG_WAITALL)
    try:
        if len(head) < LENGTH.size or len(files) != FILES:
            raise EOFError("incomplete request")
        (missing,) = LENGTH.unpack(head)
        parts = []
        while missing:
            part = connection.recv(min(missing, 1 << 16))
            if not part:
                raise EOFError("incomplete request")
            parts.append(part)
            missing -= len(part)
        request: dict[str, Any] = json.loads(b"".join(parts))
    except (EOFError, OSError, ValueError):
        for file in files:
            os.close(file)
        raise
    return request, files
