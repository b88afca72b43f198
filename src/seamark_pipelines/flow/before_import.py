"""What libraries of the environment `pipelines` need before they can be imported together: importing this module sees
to it."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_kept: list[Any] = []


def _torchvision() -> None:
    """Define two operators that torchvision asks for: its wheel brings them for CUDA, and a torch for the CPU cannot
    load them."""
    import torch

    if torch.version.cuda is None:
        operators = torch.library.Library("torchvision", "FRAGMENT")
        operators.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        operators.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept.append(operators)  # they end with it


def _torchtune() -> None:
    """Give torchao's quantizers the names that they had, which torchtune 0.6.1, the last one, imports."""
    from torchao import quantization

    earlier = {
        "int4_weight_only": "Int4WeightOnlyConfig",
        "int8_dynamic_activation_int4_weight": "Int8DynamicActivationIntxWeightConfig",
    }
    for name, today in earlier.items():
        if not hasattr(quantization, name):
            setattr(quantization, name, getattr(quantization, today))


NEEDS: Mapping[str, Callable[[], None]] = {"torchvision": _torchvision, "torchtune.training": _torchtune}


class BeforeImport(MetaPathFinder):
    """Does what a module needs before its first import, and finds none."""

    def __init__(self) -> None:
        self._left = dict(NEEDS)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return None, after what the module needs."""
        if (need := self._left.pop(fullname, None)) is not None:
            need()
        return None


sys.meta_path.insert(0, BeforeImport())
