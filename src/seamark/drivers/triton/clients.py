"""Triton over HTTP/1.1 with binary tensors, and over gRPC: the Wire and the Call driver. Requests are encoded before
the clock starts.
"""

from collections.abc import Mapping, Sequence
from math import prod

from tritonclient.grpc import service_pb2
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput

from seamark.drivers.rpc import RpcCall
from seamark.drivers.triton.models import Array
from seamark.drivers.triton.requests import HttpReplyCheck, InferenceRequests
from seamark.load.driver import Body, Target, Wire
from seamark.load.engine.http import HttpDecoder, http_request, in_url
from seamark.model.sample import Failure


class TritonHttp(Wire):
    """Inference requests; a reply is worth its batch when every output is there in the right shape and length."""

    unit = "item"
    kinds: Sequence[str] = ("infer",)

    def __init__(self, target: Target) -> None:
        self._requests = InferenceRequests.of(target.settings)
        self._host, self._port = target.host, target.ports["http"]
        self.body_count = self._requests.body_count

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return seeded requests, each the arrays of its inputs."""
        return [Body(content=arrays) for arrays in self._requests.arrays(count, seed)]

    def address(self) -> tuple[str, int]:
        """Return where the server's HTTP port is."""
        return self._host, self._port

    def encode(self, body: Body) -> bytes:
        """Return the request as Triton's own client would send it."""
        content, header_bytes = InferenceServerClient.generate_request_body(
            _inputs(body.content),
            outputs=[InferRequestedOutput(output.name, binary_data=True) for output in self._requests.model.outputs],
        )
        return http_request(
            "POST",
            f"/v2/models/{self._requests.name}/infer",
            host=f"{in_url(self._host)}:{self._port}",
            headers={
                "Content-Type": "application/octet-stream",
                "Inference-Header-Content-Length": str(header_bytes),
            },
            body=content,
        )

    def decoder(self) -> HttpDecoder:
        """Return a decoder that verifies replies."""
        return HttpDecoder(HttpReplyCheck(self._requests), most_bytes=self._requests.most_reply_bytes)


def _inputs(arrays: Mapping[str, Array]) -> list[InferInput]:
    inputs = []
    for name, values in arrays.items():
        tensor = InferInput(name, list(values.shape), "FP32")
        tensor.set_data_from_numpy(values, binary_data=True)
        inputs.append(tensor)
    return inputs


class TritonGrpc(RpcCall):
    """Inference requests; a reply is worth its batch when every output is there in the right shape and length."""

    unit = "item"
    kinds: Sequence[str] = ("infer",)
    method = "/inference.GRPCInferenceService/ModelInfer"

    def __init__(self, target: Target) -> None:
        super().__init__(target, "grpc")
        self._requests = InferenceRequests.of(target.settings)
        self.body_count = self._requests.body_count
        self.most_bytes = self._requests.most_reply_bytes

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

    def read(self, reply: bytes) -> tuple[int, Failure]:
        """Return the batch of a reply with the right outputs."""
        message = service_pb2.ModelInferResponse.FromString(reply)
        outputs, tensors = message.outputs, message.raw_output_contents
        right = len(outputs) == len(tensors) == len(self._requests.model.outputs) and all(
            output.datatype == "FP32"
            and self._requests.answers(output.name, output.shape)
            and len(tensor) == 4 * prod(output.shape)
            for output, tensor in zip(outputs, tensors, strict=True)
        )
        return self._requests.batch, Failure.NONE if right else Failure.WRONG_REPLY
