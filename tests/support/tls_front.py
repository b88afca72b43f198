"""A real TLS server on loopback in front of a plain one: its certificate is made when it starts."""

import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType


class TlsFront:
    """Speaks TLS as 127.0.0.1 and passes bytes on to a port of loopback, both ways."""

    def __init__(self, behind: int, folder: Path) -> None:
        self.certificate = folder / "cert.pem"
        key = folder / "key.pem"
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=a test"]
        made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(self.certificate)]
        subprocess.run(made, check=True, capture_output=True)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self.certificate, key)
        self._behind = behind
        self.greet: Callable[[socket.socket], object] = lambda connection: None
        """What is said in plain text before TLS begins."""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._requests: list[bytes] = []
        self.port: int = self._listening.getsockname()[1]

    def __enter__(self) -> "TlsFront":
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.close()

    def heard(self, *words: bytes) -> bool:
        """Return whether one read from a client held all these words."""
        return any(all(word.lower() in request.lower() for word in words) for request in self._requests)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=self._pass_on, args=(connection,), daemon=True).start()

    def _pass_on(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            self.greet(connection)
            client = self._context.wrap_socket(connection, server_side=True)
            with client, socket.create_connection(("127.0.0.1", self._behind)) as server:
                back = threading.Thread(target=self._copy, args=(server, client), daemon=True)
                back.start()
                self._copy(client, server, self._requests)
                with contextlib.suppress(OSError):
                    server.shutdown(socket.SHUT_WR)
                back.join()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket, kept: list[bytes] | None = None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if kept is not None:
                    kept.append(data)
                target.sendall(data)
