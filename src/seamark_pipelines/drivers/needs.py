"""What the stages of a pipeline name and this machine does not have: devices, models, data sets and files."""

import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from seamark_pipelines.model.graph import PipelineModel, StageModel
from seamark_pipelines.stages.seeded import MAKERS, PREFIX

FILES = ("checkpoint_dir", "db_path", "merges_file", "model_checkpoint_path")
"""Keys of a stage's configuration that name files and folders."""
ON_THE_HUB = ("stages.llm_huggingface.", "stages.self_rag.")
"""Families whose models and data sets may be names on Hugging Face's hub."""
PATHS = ("/", "./", "../", "~")
ANSWER_S = 5.0


def lacking_of(model: PipelineModel) -> Iterator[str]:
    """Yield what a pipeline needs and this machine does not have, a line each."""
    for stage in model.stages:
        config = stage.config
        device = str(config.get("device", "auto"))
        if device.startswith("cuda") and not any(Path("/dev").glob("nvidia[0-9]*")):
            yield f"'{stage.name}': the device '{device}' is not here. Set device to cpu or auto."
        elif device.startswith("mps"):
            yield f"'{stage.name}': the device '{device}' is an Apple machine's. Set device to cpu, cuda or auto."
        for name in _files(config):
            if not name.startswith(PREFIX) and not Path(name).expanduser().exists():
                yield f"'{stage.name}': {name} is not here. Correct the path; it begins in the study's folder."
        yield from _models(stage)


def _files(config: Mapping[str, Any]) -> Iterator[str]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _files(value)
        elif key in FILES and isinstance(value, str):
            yield value


def _models(stage: StageModel) -> Iterator[str]:
    """Yield what is wrong with names of models and data sets."""
    own = () if stage.config.get("depends_on_id") is not None else ("model",)
    for key in (*own, "dataset", "sql_dataset", "corpus_dataset"):
        value = stage.config.get(f"{key}_name", stage.config.get(key))
        name = value.get("name") if isinstance(value, Mapping) else value
        if not isinstance(name, str):
            continue
        folder = Path(name).expanduser()
        if name.startswith(PREFIX):
            if name.removeprefix(PREFIX).partition("/")[0] not in MAKERS:
                yield f"'{stage.name}': seeded is one of {', '.join(MAKERS)}, not {name}."
        elif folder.exists():
            if key == "model" and not (folder / "config.json").is_file():
                yield f"'{stage.name}': {name} has no config.json. Name the folder of a model."
        elif name.startswith(PATHS):
            yield f"'{stage.name}': there is no folder {name}. Correct it, or download the {key} there."
        elif stage.component.startswith(ON_THE_HUB) and not reachable(name, model=key == "model"):
            what = "model" if key == "model" else "data set"
            yield f"'{stage.name}': the {what} {name} is not here, and the hub has none or cannot be reached."


@cache
def reachable(name: str, *, model: bool) -> bool:
    """Return whether a model or data set is in the cache of Hugging Face, or on its hub."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache/huggingface")
    kind = "models" if model else "datasets"
    cached = Path(os.environ.get("HF_HUB_CACHE") or home / "hub") / f"{kind}--{name.replace('/', '--')}"
    if cached.is_dir() or (not model and (home / "datasets" / name.replace("/", "___")).is_dir()):
        return True
    if os.environ.get("HF_HUB_OFFLINE") == "1":
        return False
    hub = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    try:
        with urlopen(Request(f"{hub}/api/{kind}/{name}", method="HEAD"), timeout=ANSWER_S):
            return True
    except HTTPError as error:
        return error.code in (401, 403, 429)  # a login decides, when it is loaded
    except (OSError, ValueError):
        return False
