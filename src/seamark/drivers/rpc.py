"""gRPC for drivers: a driver with a connection for each user, and the category of an error. Independent of any
service."""

import queue
import time
from abc import abstractmethod

import grpc

from seamark.load.driver import Body, Call, Reply, Target
from seamark.load.engine.http import in_url
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


class RpcCall(Call):
    """A Call driver of one gRPC `method`, which gets bytes and returns bytes. Replies of more than `most_bytes` are
    refused."""

    method: str
    metadata: tuple[tuple[str, str], ...] = ()
    most_bytes = MAX_REPLY_BYTES

    def __init__(self, target: Target, port: str) -> None:
        self.address = f"{in_url(target.host)}:{target.ports[port]}"
        self.timeout_s = target.load.timeout_s

    def session(self) -> "RpcSession":
        """Return a session with an open connection. Raises ConnectionError."""
        return RpcSession(self)

    def failure(self, error: Exception) -> Failure:
        """Return the category of an exception of a connection or a call, by gRPC's own status."""
        if isinstance(error, ConnectionError):
            return Failure.CONNECT
        if not (isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call)):
            return Failure.DRIVER
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            return Failure.CONNECT if "failed to connect" in (error.details() or "") else Failure.RESET
        if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and TOO_LARGE in (error.details() or ""):
            return Failure.REPLY_TOO_LARGE
        return FAILURES.get(error.code(), Failure.SERVER_ERROR)

    @abstractmethod
    def read(self, reply: bytes) -> tuple[int, Failure]:
        """Return the units of a good reply, and its failure."""


class RpcSession:
    """One user's connection."""

    def __init__(self, driver: RpcCall) -> None:
        """Connect. Raises ConnectionError."""
        self._read, self._timeout_s, self._metadata = driver.read, driver.timeout_s, driver.metadata
        self._channel = connected(driver.address, driver.most_bytes)
        self._method = self._channel.unary_unary(driver.method)

    def call(self, body: Body) -> Reply:
        """Send one request and check its reply."""
        sent: bytes = body.content
        reply = self._method(sent, timeout=self._timeout_s, metadata=self._metadata)
        units, failure = self._read(reply)
        return Reply(units=0 if failure else units, bytes_sent=len(sent), bytes_received=len(reply), failure=failure)

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
