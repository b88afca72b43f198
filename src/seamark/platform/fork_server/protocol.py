"""How a client and its fork server find each other and what they say. A request goes one way, then lines come back.

The address lies in the abstract namespace, so nothing is left on a disk; both sides ask the kernel who the other is.
A client does no more than this for each job of each trial, so it imports little: no typing, no pathlib, no hashlib.
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
"""How the names begin of what libraries read of their environment while they are imported."""
FILES = 3
"""Standard input, output and error, handed over with every request."""


def name_of(owner: int, kind: str) -> str:
    """Return the name of the fork server of that kind for the run whose process is `owner`. ProcessLookupError when
    that has gone. Two kinds may get one name, once in a great while: a request says which it means."""
    return f"seamark-{os.getuid()}-{owner}-{start_of(owner)}-{zlib.crc32(kind.encode()):08x}"


def start_of(pid: int) -> str:
    """Return when a process started, in ticks since boot: with its id it is that process and no later one.
    ProcessLookupError when it has gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            state, *rest = file.read().rpartition(")")[2].split()
    except OSError as error:
        raise ProcessLookupError(f"no process {pid}") from error
    if state in "ZX":
        raise ProcessLookupError(f"process {pid} has ended")
    return str(rest[18])


def kind_of(python: str, preload: "Sequence[str]", environment: "Mapping[str, str]") -> str:
    """Return what tells one fork server of a run from another: interpreter, package, what it has imported, and of
    the environment what libraries read while they are imported."""
    read = [f"{name}={value}" for name, value in sorted(environment.items()) if name.startswith(READ_AT_IMPORT)]
    return " ".join([python, PACKAGE, *preload, *read])


def address(name: str) -> str:
    """Return where the fork server of that name listens."""
    return f"\0{name}"


def function_of(target: str) -> "Callable[..., object]":
    """Return the function that `module:function` names."""
    import importlib

    module, _, name = target.partition(":")
    found: Callable[..., object] = getattr(importlib.import_module(module), name)
    return found


def is_ours(connection: socket.socket) -> bool:
    """Whether the process at the other end belongs to this user: an abstract address is open to all."""
    asked = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return bool(CREDENTIALS.unpack(asked)[1] == os.getuid())


def send(connection: socket.socket, request: "Mapping[str, Any]", files: "Sequence[int]") -> None:
    """Send a request and the three files of the process that it asks for.

    A request has: `kind`, of the server it is meant for; `target`, `module:function`, and its `arguments`; `folder`
    and `environment` of the process; `orphan_signal`, which the process gets when its client has gone.
    """
    body = json.dumps(request).encode()
    socket.send_fds(connection, [LENGTH.pack(len(body))], list(files))
    connection.sendall(body)


def receive(connection: socket.socket) -> "tuple[dict[str, Any], list[int]]":
    """Return a request and its three files. Raises EOFError when the client thought better of it."""
    head, files, _, _ = socket.recv_fds(connection, LENGTH.size, FILES, socket.MSG_WAITALL)
    try:
        if len(head) < LENGTH.size or len(files) != FILES:
            raise EOFError("no whole request came")
        (missing,) = LENGTH.unpack(head)
        parts = []
        while missing:
            part = connection.recv(min(missing, 1 << 16))
            if not part:
                raise EOFError("no whole request came")
            parts.append(part)
            missing -= len(part)
        request: dict[str, Any] = json.loads(b"".join(parts))
    except (EOFError, OSError, ValueError):
        for file in files:
            os.close(file)
        raise
    return request, files
