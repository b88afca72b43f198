"""What stages with models share: devices, objects and names in a configuration, batches of a data set, training."""

from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import Any

import torch

from seamark_pipelines.flow.source_names import get_component
from seamark_pipelines.flow.stage import Stage
from seamark_pipelines.model.graph import PipelineModel, StageModel
from seamark_pipelines.model.query import Query


def device_of(name: str | None) -> torch.device:
    """Return the device that a configuration names; None or `auto`: a GPU if there is one. Raises ValueError for a
    device that is not here."""
    if name in (None, "auto"):
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(str(name))
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"the device '{name}' is not here: set device to cpu or auto")
    return device


def synchronize(device: torch.device) -> None:
    """Wait until the device has done its work, so that a stage ends when its work does."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def made(config: Mapping[str, Any], /, *arguments: Any, **named: Any) -> Any:
    """Return the object that a mapping describes: `component` is the dotted path of its class or function, all other
    keys are arguments."""
    own = {key: value for key, value in config.items() if key != "component"}
    return get_component(str(config["component"]))(*arguments, **named, **own)


def name_of(config: Mapping[str, Any], key: str = "model") -> str:
    """Return the name that a configuration writes as `model_name: X`, `model: X` or `model: {name: X}`.

    Raises ValueError without one.
    """
    found = config.get(f"{key}_name", config.get(key))
    if isinstance(found, Mapping):
        found = found.get("name")
    if not found:
        raise ValueError(f"the key '{key}' is missing: its name")
    return str(found)


class Batches(Stage):
    """Hands on one batch of a split after another. A subclass sets `rows`, the items of each split, and says in
    `prepare` how they are collated.

    `batch_size`, `num_workers`, `shuffle` (another order in each epoch, from `seed`). A batch that is not full is
    left out.
    """

    counts = "item"

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        self._size = int(self.extra_config.get("batch_size", 1))
        self.rows: dict[str, Any] = {}
        self.loaders: dict[str, Any] = {}
        self._batches: dict[str, Iterator[Any]] = {}
        self._lock = Lock()

    def get_batch_size(self) -> int:
        """Return the items of a batch."""
        return self._size

    def get_dataset_splits(self) -> dict[str, int]:
        return {split: len(rows) // self._size for split, rows in self.rows.items()}

    def loader(self, rows: Any, collate: Callable[[Any], Any] | None) -> Any:
        """Return the loader of a split's items."""
        config = self.extra_config
        return torch.utils.data.DataLoader(
            rows,
            batch_size=self._size,
            shuffle=bool(config.get("shuffle", True)),
            generator=torch.Generator().manual_seed(int(config.get("seed", 1))),
            num_workers=int(config.get("num_workers", 0)),
            collate_fn=collate,
            drop_last=True,
        )

    def run(self, query: Query) -> dict[int, Query]:
        query.data = self._next(query.split)
        self.count(self._size)
        return super().run(query)

    def _next(self, split: str) -> Any:
        """Return the next batch of a split, whichever query asks for it; after the last one an epoch begins."""
        with self._lock:
            if split in self._batches and (batch := next(self._batches[split], None)) is not None:
                return batch
            self._batches[split] = iter(self.loaders[split])
            return next(self._batches[split])


class OfModel(Stage):
    """A stage with a model on a device, which works on one query at a time, whatever its `max_in_flight`."""

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        self._device = device_of(self.extra_config.get("device"))
        self._alone = Lock()
        self.model: Any = None

    def run(self, query: Query) -> dict[int, Query]:
        with self._alone:
            self.work(query)
        return super().run(query)

    def work(self, query: Query) -> None:
        """Do the stage's work on a query."""
        raise NotImplementedError


class Training(OfModel):
    """Trains a model: one step of the optimizer in `gradient_accumulation_steps` queries; `data` becomes the loss.

    Queries of a split other than `train` are evaluated without gradients. A subclass has the loss of a batch, and
    makes the model and its schedule in `prepare`.
    """

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        self._every = int(self.extra_config.get("gradient_accumulation_steps", 1))
        self._planned_steps = max(1, pipeline_config.loadgen.max_queries // self._every)
        self._schedule: Any = None
        self._optimizer: Any = None
        self._queries = 0
        self.steps = 0

    def optimizer(self) -> Any:
        """Return the optimizer of a configuration, AdamW by default, for what can be trained of the model."""
        trained = [weights for weights in self.model.parameters() if weights.requires_grad]
        return made(self.extra_config.get("optimizer") or {"component": "torch.optim.AdamW", "lr": 3e-4}, trained)

    def loss(self, batch: Mapping[str, Any]) -> torch.Tensor:
        """Return the loss of a batch of tensors."""
        raise NotImplementedError

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of a loss to those before."""
        loss.backward()  # type: ignore[no-untyped-call, unused-ignore]

    def work(self, query: Query) -> None:
        batch = {name: value.to(self._device) for name, value in query.data.items()}
        training = query.split.startswith("train")
        self.model.train(training)
        with torch.set_grad_enabled(training):
            loss = self.loss(batch)
        if training:
            self.backward(loss / self._every)
            self._queries += 1
            if self._queries % self._every == 0:
                self._step()
        synchronize(self._device)
        query.data = loss.item()

    def _step(self) -> None:
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        if self._schedule is not None:
            self._schedule.step()


def splits_of(written: Any) -> list[str]:
    """Return the splits that a configuration names, as a list or as one text."""
    return [written] if isinstance(written, str) else list(written)
