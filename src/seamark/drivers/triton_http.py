"""Triton over HTTP/1.1 with binary tensors, as a Wire driver: requests are encoded before the clock."""

from collections.abc import Mapping, Sequence

from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput

from seamark.drivers.triton_models import Array
from seamark.drivers.triton_requests import HttpReplyCheck, Requests
from seamark.load.driver import Body, Target
from seamark.load.engine.http import HttpDecoder, http_request


class TritonHttp:
    """Inference requests; a reply is worth its batch when every output is there in the right shape and length."""

    unit = "item"
    kinds: Sequence[str] = ("infer",)

    def __init__(self, target: Target) -> None:
        self._requests = Requests.of(target.settings)
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
            host=f"{self._host}:{self._port}",
            headers={
                "Content-Type": "application/octet-stream",
                "Inference-Header-Content-Length": str(header_bytes),
            },
            body=content,
        )

    def decoder(self) -> HttpDecoder:
        """Return a decoder that knows which replies are right."""
        return HttpDecoder(HttpReplyCheck(self._requests), most_bytes=self._requests.most_reply_bytes)


def _inputs(arrays: Mapping[str, Array]) -> list[InferInput]:
    inputs = []
    for name, values in arrays.items():
        tensor = InferInput(name, list(values.shape), "FP32")
        tensor.set_data_from_numpy(values, binary_data=True)
        inputs.append(tensor)
    return inputs
