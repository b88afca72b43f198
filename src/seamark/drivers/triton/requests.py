"""Requests of a trial to Triton: seeded inputs of a model, and the expected shapes of replies. Independent of
protocol."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from seamark.drivers.triton.models import MODELS, Array, ModelTensors
from seamark.load.driver import whole
from seamark.model.service import Value

KEPT_BYTES = 64 << 20
"""Memory limit of a trial's distinct requests."""
MOST_SAID_BYTES = 1 << 16
"""Size limit of a reply besides its tensors."""
MOST_KNOWN = 4096

HEADER_END = b"}}]}"
"""End of the JSON part of a reply whose outputs are all binary; the tensors follow directly."""


@dataclass(frozen=True, kw_only=True)
class InferenceRequests:
    """Requests of `batch` items; their dynamic size is drawn evenly from `smallest` to `largest`."""

    name: str
    batch: int
    smallest: int
    largest: int

    @staticmethod
    def of(settings: Mapping[str, Value]) -> "InferenceRequests":
        """Return the requests that a trial's settings describe."""
        smallest = whole(settings, "dimensions")
        return InferenceRequests(
            name=str(settings["model"]),
            batch=whole(settings, "batch"),
            smallest=smallest,
            largest=max(smallest, whole(settings, "dimensions_max", smallest)),
        )

    @property
    def model(self) -> ModelTensors:
        return MODELS[self.name]

    @property
    def most_reply_bytes(self) -> int:
        """Return the largest size of a good reply: its tensors and their description."""
        floats = sum(prod(output.of(self.batch, self.largest)) for output in self.model.outputs)
        return 4 * floats + MOST_SAID_BYTES

    @property
    def body_count(self) -> int:
        """Number of distinct requests: at most 1024, fewer if they would not fit."""
        item_bytes = sum(4 * prod(tensor.of(1, 1)) for tensor in self.model.inputs)  # of dynamic size 1
        return max(16, min(1024, KEPT_BYTES // (item_bytes * self.batch * self.largest)))

    def arrays(self, count: int, seed: int) -> Iterator[Mapping[str, Array]]:
        """Yield the inputs of `count` requests, by name of the tensor."""
        rng = np.random.default_rng(seed)
        for _ in range(count):
            size = int(rng.integers(self.smallest, self.largest, endpoint=True))
            yield {
                tensor.name: rng.standard_normal(tensor.of(self.batch, size), dtype=np.float32)
                for tensor in self.model.inputs
            }

    def answers(self, name: str, shape: list[int]) -> bool:
        """Say whether an output of that name and shape can answer one of these requests."""
        tensor = next((output for output in self.model.outputs if output.name == name), None)
        if tensor is None or len(shape) != 1 + len(tensor.shape) or shape[0] != self.batch:
            return False
        return all(
            self.smallest <= got <= self.largest if wanted < 0 else got == wanted
            for got, wanted in zip(shape[1:], tensor.shape, strict=True)
        )


class HttpReplyCheck:
    """Counts the items of a reply; a reply without an output, or with one of another shape or length, is wrong.

    The JSON part is equal for all requests of one size, so it is parsed once and then compared by its bytes.
    """

    def __init__(self, requests: InferenceRequests) -> None:
        self._requests = requests
        self._known: dict[bytes, int] = {}

    def __call__(self, status: int, body: bytes) -> int:
        """Return the items in the reply; ValueError when it is wrong."""
        end = body.find(HEADER_END) + len(HEADER_END)
        header = body[:end]
        tensors_bytes = self._known.get(header)
        if tensors_bytes is None:
            tensors_bytes = self._read(header)
            if len(self._known) < MOST_KNOWN:
                self._known[header] = tensors_bytes
        if len(body) - end != tensors_bytes:
            raise ValueError(f"{len(body) - end} bytes of tensors, {tensors_bytes} announced")
        return self._requests.batch

    def _read(self, header: bytes) -> int:
        """Return the size of the tensors that a reply's JSON announces. Raises ValueError if the outputs differ from
        the request's."""
        try:
            outputs = json.loads(header)["outputs"]
            sizes = {output["name"]: output["parameters"]["binary_data_size"] for output in outputs}
            right = all(
                output["datatype"] == "FP32"
                and self._requests.answers(output["name"], output["shape"])
                and sizes[output["name"]] == 4 * prod(output["shape"])
                for output in outputs
            )
        except (KeyError, TypeError, RecursionError) as cause:
            raise ValueError(f"not a reply of an inference: {header[:200]!r}") from cause
        if (
            not right
            or len(sizes) != len(outputs)
            or set(sizes) != {output.name for output in self._requests.model.outputs}
        ):
            raise ValueError(f"outputs that were not asked for: {header[:200]!r}")
        return sum(sizes.values())
