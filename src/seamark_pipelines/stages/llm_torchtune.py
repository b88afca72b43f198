"""Language models with torchtune: batches of a data set, LoRA fine-tuning and generation from a Hugging Face
checkpoint."""

from collections.abc import Mapping
from functools import partial
from itertools import takewhile
from typing import Any

import torch
from torchtune.data import padded_collate_sft
from torchtune.generation import generate
from torchtune.modules.peft import get_adapter_params, set_trainable_params
from torchtune.training import MODEL_KEY, set_default_dtype
from torchtune.training.checkpointing import FullModelHFCheckpointer

from seamark_pipelines.flow.source_names import get_component
from seamark_pipelines.model.graph import PipelineModel, StageModel
from seamark_pipelines.model.query import Query
from seamark_pipelines.stages.models import Batches, OfModel, Training, made, splits_of, synchronize
from seamark_pipelines.stages.seeded import place

NOT_OF_THE_MODEL = ("KV_cache",)


def weights_of(config: Mapping[str, Any]) -> Any:
    """Return the weights of a checkpoint in Hugging Face's form, with torchtune's names."""
    options = {key: value for key, value in config.items() if key != "component"}
    options["checkpoint_dir"] = place(str(options["checkpoint_dir"]))
    options["output_dir"] = str(options.get("output_dir") or "tmp/torchtune")
    return FullModelHFCheckpointer(**options).load_checkpoint()[MODEL_KEY]


def built(config: Mapping[str, Any], device: torch.device) -> Any:
    """Return the model of a stage: `model` has its component and arguments, `dtype` its type, `checkpointer` its
    weights."""
    options = {key: value for key, value in config["model"].items() if key not in NOT_OF_THE_MODEL}
    with set_default_dtype(get_component(config.get("dtype", "torch.float32"))), device:
        model = made(options)
    model.load_state_dict(weights_of(config["checkpointer"]), strict=False)
    return model


class TorchTuneDataLoader(Batches):
    """Batches of a data set of torchtune: token ids and labels. `tokenizer` and `dataset` are components.

    Four fifths of the rows are the split `train`, the rest `val`, both drawn by `seed`. Labels are padded with the
    value that the loss of the stage `loss_fn_stage_id` ignores.
    """

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        config = self.extra_config
        self._tokenizer = made(_placed(config["tokenizer"]))
        rows = made(_placed(config["dataset"]), tokenizer=self._tokenizer)
        seeded = torch.Generator().manual_seed(int(config.get("seed", 1)))
        both = dict(
            zip(("train", "val"), torch.utils.data.random_split(rows, [0.8, 0.2], generator=seeded), strict=True)
        )
        self.rows = {split: both[split] for split in splits_of(config.get("split", ["train"]))}

    def get_tokenizer(self) -> Any:
        """Return the tokenizer of the data."""
        return self._tokenizer

    def prepare(self) -> None:
        options: dict[str, Any] = {"padding_idx": self._tokenizer.pad_id}
        loss = self.extra_config.get("loss_fn_stage_id")
        if loss is not None:
            options["ignore_idx"] = self.dispatch_call(int(loss), "get_loss_fn").ignore_index
        for split, rows in self.rows.items():
            self.loaders[split] = self.loader(rows, partial(padded_collate_sft, **options))


def _placed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with the folders of what is made from a seed."""
    return {key: place(value) if isinstance(value, str) else value for key, value in config.items()}


class Finetune(Training):
    """Trains LoRA adapters, by the `loss` of a configuration."""

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        self._loss = made(self.extra_config.get("loss") or {"component": "torch.nn.CrossEntropyLoss"})

    def get_loss_fn(self) -> Any:
        """Return the loss function."""
        return self._loss

    def prepare(self) -> None:
        config = self.extra_config
        torch.manual_seed(int(config.get("seed", 1)))
        self.model = built(config, self._device)
        set_trainable_params(self.model, get_adapter_params(self.model))
        self._optimizer = self.optimizer()
        if config.get("lr_scheduler"):
            named = {"optimizer": self._optimizer, "num_training_steps": self._planned_steps}
            self._schedule = made(config["lr_scheduler"], **named)

    def loss(self, batch: Mapping[str, Any]) -> torch.Tensor:
        scores = self.model(batch["tokens"], mask=batch.get("mask"), input_pos=batch.get("input_pos"))
        loss: torch.Tensor = self._loss(scores[:, :-1].transpose(1, 2), batch["labels"][:, 1:])
        return loss


class Inference(OfModel):
    """Generates `max_new_tokens` after each row of a batch, by `temperature` and `top_k`; `data` becomes the texts.

    With `model.KV_cache`, keys and values are kept for batches of the stage `batch_size_stage_id`.
    """

    counts = "token"

    def prepare(self) -> None:
        config = self.extra_config
        torch.manual_seed(int(config.get("seed", 1)))
        self.model = built(config, self._device).eval()
        self._tokenizer = self.dispatch_call(int(config.get("tokenizer_stage_id", 0)), "get_tokenizer")
        if config["model"].get("KV_cache"):
            size = self.dispatch_call(int(config.get("batch_size_stage_id", 0)), "get_batch_size")
            kind = get_component(config.get("dtype", "torch.float32"))
            with self._device:
                self.model.setup_caches(batch_size=size, dtype=kind)

    def work(self, query: Query) -> None:
        config = self.extra_config
        prompts = query.data["tokens"].to(self._device)
        with torch.no_grad():
            if self.model.caches_are_enabled():
                self.model.reset_caches()
            tokens, _ = generate(
                model=self.model,
                prompt=prompts,
                max_generated_tokens=int(config.get("max_new_tokens", 300)),
                pad_id=self._tokenizer.pad_id,
                temperature=float(config.get("temperature", 0.6)),
                top_k=config.get("top_k", 300),
                stop_tokens=self._tokenizer.stop_tokens,
            )
        synchronize(self._device)
        ends = set(self._tokenizer.stop_tokens)
        rows = [
            list(takewhile(lambda token: token not in ends, row)) for row in tokens[:, prompts.shape[1] :].tolist()
        ]
        self.count(sum(map(len, rows)))
        query.data = [self._tokenizer.decode(row) for row in rows]
