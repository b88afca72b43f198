"""Triton over HTTP/1.1 with binary tensors, as a Wire driver: requests are encoded before the clock."""

import json
from collections.abc import Mapping, Sequence
from math import prod

from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput

from seamark.drivers.triton_models import Array
from seamark.drivers.triton_requests import Requests
from seamark.load.driver import Body, Target
from seamark.load.http import HttpDecoder, http_request

HEADER_END = b"}}]}"
"""Ends the JSON part of a reply whose outputs are all binary; the tensors follow at once."""


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
        return HttpDecoder(ReplyCheck(self._requests))


class ReplyCheck:
    """Counts the items of a reply; a reply that lacks an output, or has one of another shape or length, is wrong.

    The JSON of a reply says the same for all requests of one size, so it is read once and then known by its bytes.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._known: dict[bytes, int] = {}

    def __call__(self, status: int, body: bytes) -> int:
        """Return the items in the reply; ValueError when it is wrong."""
        end = body.find(HEADER_END) + len(HEADER_END)
        header = body[:end]
        tensors_bytes = self._known.get(header)
        if tensors_bytes is None:
            tensors_bytes = self._known[header] = self._read(header)
        if len(body) - end != tensors_bytes:
            raise ValueError(f"{len(body) - end} bytes of tensors, {tensors_bytes} announced")
        return self._requests.batch

    def _read(self, header: bytes) -> int:
        """Return the bytes of tensors that a reply's JSON announces; ValueError when the outputs are not ours."""
        try:
            outputs = json.loads(header)["outputs"]
            sizes = {output["name"]: output["parameters"]["binary_data_size"] for output in outputs}
            right = all(
                output["datatype"] == "FP32"
                and self._requests.answers(output["name"], output["shape"])
                and sizes[output["name"]] == 4 * prod(output["shape"])
                for output in outputs
            )
        except (KeyError, TypeError) as cause:
            raise ValueError(f"not a reply of an inference: {header[:200]!r}") from cause
        if (
            not right
            or len(sizes) != len(outputs)
            or set(sizes) != {one.name for one in self._requests.model.outputs}
        ):
            raise ValueError(f"outputs that were not asked for: {header[:200]!r}")
        return sum(sizes.values())


def _inputs(arrays: Mapping[str, Array]) -> list[InferInput]:
    inputs = []
    for name, values in arrays.items():
        tensor = InferInput(name, list(values.shape), "FP32")
        tensor.set_data_from_numpy(values, binary_data=True)
        inputs.append(tensor)
    return inputs
