"""The models that Triton serves here: their tensors, their repository on disk, and their correct answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seamark.model.service import Value

Array = NDArray[np.float32]

FEATURES, HIDDEN, CLASSES = 64, 128, 10


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A float32 tensor of a model: its name and the shape of one item, -1 where a request chooses the size."""

    name: str
    shape: tuple[int, ...]

    def of(self, batch: int, size: int) -> tuple[int, ...]:
        """Return its shape in a request of `batch` items of dynamic size `size`."""
        return (batch, *(size if length < 0 else length for length in self.shape))


@dataclass(frozen=True, kw_only=True)
class ModelTensors:
    """A model's tensors; every item of a request has the same dynamic size."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


MODELS: Mapping[str, ModelTensors] = {
    "addsub": ModelTensors(
        inputs=(Tensor(name="X", shape=(-1,)), Tensor(name="Y", shape=(-1,))),
        outputs=(Tensor(name="SUM", shape=(-1,)), Tensor(name="DIFFERENCE", shape=(-1,))),
    ),
    "mlp": ModelTensors(
        inputs=(Tensor(name="x", shape=(-1, FEATURES)),),
        outputs=(Tensor(name="y", shape=(CLASSES,)),),
    ),
}


def expected(model: str, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
    """Return the outputs of a correct server, computed with numpy."""
    if model == "addsub":
        return {"SUM": inputs["X"] + inputs["Y"], "DIFFERENCE": inputs["X"] - inputs["Y"]}
    first, second = _weights()
    hidden = np.maximum(inputs["x"] @ first, 0)
    return {"y": (hidden @ second).mean(axis=1, dtype=np.float32)}


def write_repository(folder: Path, settings: Mapping[str, Value]) -> None:
    """Write the model that the settings name into a model repository."""
    name = str(settings["model"])
    version = folder / name / "1"
    version.mkdir(parents=True, exist_ok=True)
    (folder / name / "config.pbtxt").write_text(_config(name, settings), encoding="utf-8")
    if settings["backend"] == "python":
        (version / "model.py").write_text(_PYTHON[name], encoding="utf-8")
    if name == "mlp":
        (version / "model.onnx").write_bytes(_perceptron())


def _config(name: str, settings: Mapping[str, Value]) -> str:
    """Return config.pbtxt. It states every option that affects speed, so no default of a version decides."""
    model = MODELS[name]
    in_python = settings["backend"] == "python"
    lines = [
        f'name: "{name}"',
        f'backend: "{settings["backend"]}"',
        f"max_batch_size: {settings['max_batch_size']}",
        f"input [ {_tensors(model.inputs)} ]",
        f"output [ {_tensors(model.outputs)} ]",
        f"instance_group [ {{ kind: {'KIND_CPU' if in_python else 'KIND_AUTO'} count: {settings['instances']} }} ]",
    ]
    if settings["dynamic_batching"]:
        lines.append(f"dynamic_batching {{ max_queue_delay_microseconds: {settings['max_queue_delay_us']} }}")
    return "\n".join(lines) + "\n"


def _tensors(tensors: Sequence[Tensor]) -> str:
    return ", ".join(
        f'{{ name: "{tensor.name}" data_type: TYPE_FP32 dims: {list(tensor.shape)} }}' for tensor in tensors
    )


def _weights() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    first = rng.standard_normal((FEATURES, HIDDEN), dtype=np.float32) * np.float32(0.1)
    second = rng.standard_normal((HIDDEN, CLASSES), dtype=np.float32) * np.float32(0.1)
    return first, second


def _perceptron() -> bytes:
    """Return the mlp as ONNX: over each row of an item MatMul, ReLU, MatMul, then the mean over the rows."""
    import onnx  # only the preparation of a server needs it, not its clients

    def floats(name: str, shape: Sequence[Any]) -> Any:
        return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)

    first, second = _weights()
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("MatMul", ["x", "W1"], ["h"]),
            onnx.helper.make_node("Relu", ["h"], ["a"]),
            onnx.helper.make_node("MatMul", ["a", "W2"], ["rows"]),
            onnx.helper.make_node("ReduceMean", ["rows"], ["y"], axes=[1], keepdims=0),
        ],
        "mlp",
        [floats("x", ["batch", "rows", FEATURES])],
        [floats("y", ["batch", CLASSES])],
        [onnx.numpy_helper.from_array(first, "W1"), onnx.numpy_helper.from_array(second, "W2")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    encoded: bytes = model.SerializeToString()
    return encoded


_PYTHON: Mapping[str, str] = {
    "addsub": '''\
"""Sum and difference of two vectors: what the server costs when the model costs nothing."""

import triton_python_backend_utils as triton


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = triton.get_input_tensor_by_name(request, "X").as_numpy()
        y = triton.get_input_tensor_by_name(request, "Y").as_numpy()
        return triton.InferenceResponse([triton.Tensor("SUM", x + y), triton.Tensor("DIFFERENCE", x - y)])
''',
    "mlp": '''\
"""The mlp in ONNX Runtime on one thread; requests that Triton joined are executed as one batch."""

import os

import numpy as np
import onnxruntime
import triton_python_backend_utils as triton


class TritonPythonModel:
    def initialize(self, args):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        path = os.path.join(args["model_repository"], args["model_version"], "model.onnx")
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def execute(self, requests):
        items = [triton.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        joined = self.session.run(["y"], {"x": np.concatenate(items)})[0]
        ends = np.cumsum([len(item) for item in items])[:-1]
        return [triton.InferenceResponse([triton.Tensor("y", part)]) for part in np.split(joined, ends)]
''',
}
