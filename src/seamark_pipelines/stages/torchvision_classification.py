"""Classification of pictures with torchvision: decoding, the preprocessing of a model's weights, inference and
transfer learning."""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from seamark_pipelines.flow.source_names import get_component
from seamark_pipelines.flow.stage import Stage
from seamark_pipelines.model.graph import PipelineModel, StageModel
from seamark_pipelines.model.query import Query
from seamark_pipelines.stages.models import Batches, OfModel, made, splits_of, synchronize
from seamark_pipelines.stages.seeded import place

DATA = Path("tmp", "torchvision_dataset")
"""Where a data set without a `root` lies, in a folder of its name."""
DATASET_KEYS = ("component", "root", "split", "weights", "transform")


def as_is(items: Sequence[Any]) -> Sequence[Any]:
    """Return the items of a batch as they are, for a stage that preprocesses them."""
    return items


class Preloaded(torch.utils.data.Dataset):  # type: ignore[misc, type-arg, unused-ignore]
    """A data set whose items are decoded once, and transformed each time."""

    def __init__(self, rows: Any) -> None:
        self._transform, rows.transform = rows.transform, None
        self._items = [rows[number] for number in range(len(rows))]

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, number: int) -> Any:
        picture, label = self._items[number]
        return (self._transform(picture) if self._transform else picture), label


class TorchVisionDataLoader(Batches):
    """Batches of a data set of torchvision: a list of (picture, label), or two tensors with `preprocess` (default).

    `dataset` has `component`, `root`, `split` (a list), `weights` whose preprocessing is done here, `transform` (a
    function of the split), and further arguments of the class. A class without an argument `split`, such as
    ImageFolder, reads the folder of that name. `preload` decodes all pictures before the clock starts.
    """

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        source: Mapping[str, Any] = self.extra_config["dataset"]
        path = str(source["component"])
        root = Path(place(str(source.get("root") or DATA / path.rpartition(".")[2])))
        there = root.is_dir() and any(root.iterdir())
        splits = splits_of(source.get("split", ["val"]))
        self.rows = {split: _dataset(source, split, root, download=not there) for split in splits}

    def prepare(self) -> None:
        collate = None if self.extra_config.get("preprocess", True) else as_is
        for split, rows in self.rows.items():
            self.loaders[split] = self.loader(Preloaded(rows) if self.extra_config.get("preload") else rows, collate)


def _dataset(source: Mapping[str, Any], split: str, root: Path, *, download: bool) -> Any:
    """Return a split of a data set, with `download` from where its class finds it."""
    from torchvision.models import get_weight
    from torchvision.transforms import v2

    kind = get_component(str(source["component"]))
    known = inspect.signature(kind).parameters
    options = {key: value for key, value in source.items() if key not in DATASET_KEYS}
    if "split" in known:
        options["split"] = split
    elif (root / split).is_dir():
        root = root / split
    if "download" in known:
        options.setdefault("download", download)
    if source.get("weights"):
        transform = get_weight(source["weights"]).transforms()
    elif source.get("transform"):
        transform = get_component(source["transform"])(split)
    else:
        transform = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    return kind(root=str(root), transform=transform, **options)


class TorchVisionPreprocessFromWeights(Stage):
    """Preprocesses each picture of a batch as the model's `weights` say; `data` becomes two tensors: pictures (n, 3,
    height, width) and labels (n)."""

    def prepare(self) -> None:
        from torchvision.models import get_weight

        self._preprocess = get_weight(self.extra_config["weights"]).transforms()

    def run(self, query: Query) -> dict[int, Query]:
        pictures = torch.stack([self._preprocess(picture) for picture, _ in query.data])
        query.data = [pictures, torch.tensor([int(label) for _, label in query.data])]
        return super().run(query)


class TorchVisionClassification(OfModel):
    """Classifies pictures, or trains a model's head on them where the split is `train` and an `optimizer` is given.

    `model` has component, weights, num_classes, replace_classifier, and model_checkpoint_path. The head is its last
    linear layer. Everything else keeps its weights and the statistics of its norms. `data` becomes the loss of
    training, else the class of each picture.
    """

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        self._optimizer: Any = None
        self._criterion: Any = None

    def prepare(self) -> None:
        config, options = self.extra_config, self.extra_config["model"]
        torch.manual_seed(int(config.get("seed", 1)))
        self.model = get_component(options["component"])(weights=options.get("weights"))
        heads = [(name, part) for name, part in self.model.named_modules() if isinstance(part, torch.nn.Linear)]
        if not heads:
            raise ValueError(f"{options['component']} has no linear layer as its head")
        path, head = heads[-1]
        if options.get("replace_classifier"):
            head = torch.nn.Linear(head.in_features, int(options.get("num_classes", 1000)))
            parent, _, last = path.rpartition(".")
            setattr(self.model.get_submodule(parent), last, head)
        if options.get("model_checkpoint_path"):
            self.model.load_state_dict(torch.load(place(options["model_checkpoint_path"]), map_location="cpu"))
        self.model.requires_grad_(False)
        self.model.eval().to(self._device)
        if config.get("optimizer"):
            head.requires_grad_(True)
            self._optimizer = made(config["optimizer"], list(head.parameters()))
            self._criterion = made(config.get("criterion") or {"component": "torch.nn.CrossEntropyLoss"})

    def work(self, query: Query) -> None:
        pictures, labels = query.data
        pictures = pictures.to(self._device)
        training = query.split == "train" and self._optimizer is not None
        with torch.set_grad_enabled(training):
            found = self.model(pictures)
            if training:
                loss = self._criterion(found, labels.long().to(self._device))
                self._optimizer.zero_grad()
                loss.backward()
                self._optimizer.step()
        synchronize(self._device)
        query.data = loss.item() if training else found.argmax(-1).tolist()
