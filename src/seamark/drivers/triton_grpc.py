"""Triton over gRPC, as a Call driver: a connection for each user, requests encoded before the clock."""

from collections.abc import Sequence
from math import prod

from tritonclient.grpc import service_pb2

from seamark.drivers import rpc
from seamark.drivers.triton_requests import Requests
from seamark.load.driver import Body, Reply, Target
from seamark.model.failure import Failure

INFER = "/inference.GRPCInferenceService/ModelInfer"


class TritonGrpc:
    """Inference requests; a reply is worth its batch when every output is there in the right shape and length."""

    unit = "item"
    kinds: Sequence[str] = ("infer",)

    def __init__(self, target: Target) -> None:
        self._requests = Requests.of(target.settings)
        self._address = f"{target.host}:{target.ports['grpc']}"
        timeout_s = target.settings.get("timeout_s")
        self._timeout_s = None if timeout_s is None else float(timeout_s)
        self.body_count = self._requests.body_count

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return seeded requests, each the bytes of its message."""
        contents = []
        for arrays in self._requests.arrays(count, seed):
            message = service_pb2.ModelInferRequest(model_name=self._requests.name)
            for name, values in arrays.items():
                message.inputs.add(name=name, datatype="FP32", shape=values.shape)
                message.raw_input_contents.append(values.tobytes())
            contents.append(Body(content=message.SerializeToString()))
        return contents

    def session(self) -> "GrpcSession":
        """Return a session whose connection is open."""
        return GrpcSession(self._requests, self._address, self._timeout_s)

    def failure(self, error: Exception) -> Failure:
        """Return the category of gRPC's own status."""
        return rpc.category(error)


class GrpcSession:
    """One user's connection."""

    def __init__(self, requests: Requests, address: str, timeout_s: float | None) -> None:
        self._requests = requests
        self._timeout_s = timeout_s
        self._channel = rpc.connected(address, requests.most_reply_bytes)
        self._infer = self._channel.unary_unary(INFER)  # bytes in, bytes out

    def call(self, body: Body) -> Reply:
        """Ask for one inference and look at the shapes of what came."""
        received: bytes = self._infer(body.content, timeout=self._timeout_s)
        right = self._right(service_pb2.ModelInferResponse.FromString(received))
        return Reply(
            units=self._requests.batch if right else 0,
            bytes_sent=len(body.content),
            bytes_received=len(received),
            failure=Failure.NONE if right else Failure.WRONG_REPLY,
        )

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def _right(self, message: service_pb2.ModelInferResponse) -> bool:
        outputs, tensors = message.outputs, message.raw_output_contents
        return len(outputs) == len(tensors) == len(self._requests.model.outputs) and all(
            output.datatype == "FP32"
            and self._requests.answers(output.name, output.shape)
            and len(tensor) == 4 * prod(output.shape)
            for output, tensor in zip(outputs, tensors, strict=True)
        )
