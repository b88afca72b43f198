"""gRPC for drivers: a connection for each user, and the category of an error. Independent of any service."""

import queue
import time
from collections.abc import Callable

import grpc

from seamark.load.driver import Body, Reply
from seamark.model.sample import Failure

CONNECT_S = 10.0
MAX_REPLY_BYTES = 1 << 26
"""Most bytes of a reply where a driver does not say better."""
TOO_LARGE = "Received message larger than max"
"""Prefix of gRPC's message about a reply that exceeds the size limit."""
OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # else all channels of a process share one connection
)
FAILURES = {
    grpc.StatusCode.DEADLINE_EXCEEDED: Failure.TIMEOUT,
    grpc.StatusCode.INVALID_ARGUMENT: Failure.CLIENT_ERROR,
    grpc.StatusCode.NOT_FOUND: Failure.CLIENT_ERROR,
    grpc.StatusCode.UNIMPLEMENTED: Failure.CLIENT_ERROR,
    grpc.StatusCode.OUT_OF_RANGE: Failure.CLIENT_ERROR,
}


Read = Callable[[bytes, int], Reply]
"""Returns what a reply's bytes are worth, given how many bytes were sent."""


class RpcSession:
    """One user's connection, on which one method is called with bytes and returns bytes."""

    def __init__(
        self,
        address: str,
        method: str,
        read: Read,
        timeout_s: float,
        *,
        metadata: tuple[tuple[str, str], ...] = (),
        most_bytes: int = MAX_REPLY_BYTES,
    ) -> None:
        """Connect. Raises ConnectionError."""
        self._read = read
        self._timeout_s = timeout_s
        self._metadata = metadata
        self._channel = connected(address, most_bytes)
        self._method = self._channel.unary_unary(method)

    def call(self, body: Body) -> Reply:
        """Send one request and check its reply."""
        sent: bytes = body.content
        return self._read(self._method(sent, timeout=self._timeout_s, metadata=self._metadata), len(sent))

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()


def connected(address: str, most_bytes: int = MAX_REPLY_BYTES) -> grpc.Channel:
    """Return a channel that is connected; ConnectionError at its first failure, where gRPC would try again.

    Replies of more than `most_bytes` are refused.
    """
    options = (*OPTIONS, ("grpc.max_receive_message_length", most_bytes))
    channel = grpc.insecure_channel(address, options=options)
    states: queue.SimpleQueue[grpc.ChannelConnectivity] = queue.SimpleQueue()
    channel.subscribe(states.put, try_to_connect=True)
    state = grpc.ChannelConnectivity.CONNECTING
    until_s = time.monotonic() + CONNECT_S
    try:
        while state is not grpc.ChannelConnectivity.READY:
            if state in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN):
                raise ConnectionError(f"{address}: gRPC cannot connect ({state.name})")
            state = states.get(timeout=max(0.0, until_s - time.monotonic()))
    except queue.Empty:
        raise ConnectionError(f"{address}: gRPC is not connected after {CONNECT_S:g} s") from None
    finally:
        channel.unsubscribe(states.put)
    return channel


def category(error: Exception) -> Failure:
    """Return the category of an exception of a connection or a call."""
    if isinstance(error, ConnectionError):
        return Failure.CONNECT
    if not (isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call)):
        return Failure.DRIVER
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return Failure.CONNECT if "failed to connect" in (error.details() or "") else Failure.RESET
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and TOO_LARGE in (error.details() or ""):
        return Failure.REPLY_TOO_LARGE
    return FAILURES.get(error.code(), Failure.SERVER_ERROR)
