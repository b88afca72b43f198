"""Triton: the model repository of its server, the driver of the trial's protocol, and a check of its replies.

tritonclient exists in the service's environment only, so it is imported where it is used.
"""

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from seamark.drivers.triton.models import expected, write_repository
from seamark.drivers.triton.requests import InferenceRequests
from seamark.errors import SiteError
from seamark.load.driver import Call, Hooks, Target, Wire
from seamark.load.engine.http import in_url
from seamark.model.service import Value

CHECKED_REQUESTS = 8
CHECK_S = 30.0
"""Time-out of one request, so that a hanging server does not block the check."""


def driver(target: Target) -> Wire | Call:
    """Return the driver for the trial's protocol."""
    from seamark.drivers.triton.clients import TritonGrpc, TritonHttp

    return TritonGrpc(target) if target.settings["protocol"] == "grpc" else TritonHttp(target)


def stage(target: Target, seed: int) -> Mapping[str, Value]:
    """Write the model repository and, for the embedded server, the folder of backends that it can load."""
    settings = target.settings
    if settings["backend"] != "python" and settings["model"] != "mlp":
        raise SiteError(f"triton: model '{settings['model']}' has no ONNX file. Use backend python, or model mlp.")
    models = target.data / "models"
    write_repository(models, settings)
    _link_backends(target.data / "backends")
    return {"model_bytes": sum(path.stat().st_size for path in models.rglob("*") if path.is_file())}


def quality(target: Target, seed: int) -> Mapping[str, float]:
    """Return the ratio of a few requests whose outputs equal numpy's, over the trial's protocol."""
    from tritonclient import grpc, http

    settings = target.settings
    if settings["protocol"] == "grpc":
        client, limits, call_limits = grpc, {}, {"client_timeout": CHECK_S}
    else:
        client, limits, call_limits = http, {"connection_timeout": CHECK_S, "network_timeout": CHECK_S}, {}
    name = str(settings["model"])
    address = f"{in_url(target.host)}:{target.ports[str(settings['protocol'])]}"
    right = 0
    with client.InferenceServerClient(address, **limits) as server:
        for arrays in InferenceRequests.of(settings).arrays(CHECKED_REQUESTS, seed):
            inputs = []
            for key, values in arrays.items():
                tensor = client.InferInput(key, list(values.shape), "FP32")
                tensor.set_data_from_numpy(values)
                inputs.append(tensor)
            answer = server.infer(name, inputs, **call_limits)
            right += all(_alike(answer.as_numpy(key), values) for key, values in expected(name, arrays).items())
    return {"right_ratio": right / CHECKED_REQUESTS}


def _alike(got: "np.ndarray | None", wanted: np.ndarray) -> bool:
    return got is not None and got.shape == wanted.shape and np.allclose(got, wanted, rtol=1e-4, atol=1e-5)


def _link_backends(folder: Path) -> None:
    """Lay the Python backend beside the stub for this Python: nvidia-pytriton ships them apart."""
    found = importlib.util.find_spec("pytriton")
    if found is None or not found.submodule_search_locations:
        return  # another server brings its own backends
    bundled = Path(found.submodule_search_locations[0]) / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = bundled / "python_backend_stubs" / version / "triton_python_backend_stub"
    if not stub.exists():
        has = sorted(path.name for path in stub.parent.parent.iterdir())
        raise SiteError(f"triton: the embedded server has no stub for Python {version}, only for {', '.join(has)}.")
    python = folder / "python"
    python.mkdir(parents=True, exist_ok=True)
    for part in (*(bundled / "backends" / "python").glob("*triton_python*"), stub):
        link = python / part.name
        link.unlink(missing_ok=True)
        link.symlink_to(part)


HOOKS = Hooks(stage=stage, quality=quality)
