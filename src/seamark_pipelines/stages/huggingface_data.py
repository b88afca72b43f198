"""Data of language models: rows of a data set of Hugging Face, and batches of prompts and answers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import DataCollatorForSeq2Seq

from seamark_pipelines.flow.stage import Stage
from seamark_pipelines.model.graph import PipelineModel, StageModel
from seamark_pipelines.model.query import Query
from seamark_pipelines.stages.models import Batches, name_of, splits_of
from seamark_pipelines.stages.seeded import place

IGNORED = -100
"""Label of a token that the loss leaves out."""
PROMPTS = (
    "Is 'Messi is a football player' supported by 'Messi plays football in Argentina'? Answer yes or no.",
    "Is 'Messi is a singer' supported by 'Messi plays football in Argentina'? Answer yes or no.",
    "Is 'a plan has several steps' supported by 'agents split a task into steps'? Answer yes or no.",
)


def rows_of(config: Mapping[str, Any], split: str) -> Any:
    """Return a split of a data set: a name on the hub, a folder, or a JSONL, CSV or Parquet file."""
    from datasets import load_dataset

    name = place(name_of({"dataset": config}, "dataset"))
    path = Path(name)
    kinds = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
    if path.is_file() and path.suffix in kinds:
        return load_dataset(kinds[path.suffix], data_files={split: name}, split=split)
    options = {"name": config["subset"]} if config.get("subset") else {}
    return load_dataset(name, **options, data_files=config.get("data_files"), split=split)


class HuggingFaceDataLoader(Batches):
    """Batches of a data set in Alpaca's form: tensors of token ids, attention mask and labels.

    `dataset` has its name and columns (`system_column_name`, `user_column_name`, `assistant_column_name`), or an
    `instruction` for all rows. A split whose name begins with `train` has prompts and answers, others prompts alone.
    With `mask_prompt: true` the loss leaves prompts out.
    """

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        self._columns: Mapping[str, Any] = self.extra_config["dataset"]
        splits = splits_of(self.extra_config.get("split", ["train"]))
        self.rows = {split: rows_of(self._columns, split) for split in splits}

    def prepare(self) -> None:
        source = int(self.extra_config.get("tokenizer_stage_id", 0))
        self._tokenizer = self.dispatch_call(source, "get_tokenizer")
        self._collate = DataCollatorForSeq2Seq(self._tokenizer, label_pad_token_id=IGNORED)
        accelerator = self.dispatch_call(
            int(self.extra_config.get("accelerator_stage_id", source)), "get_accelerator"
        )
        for split, rows in self.rows.items():
            loader = self.loader(rows, self._trained if split.startswith("train") else self._asked)
            self.loaders[split] = accelerator.prepare(loader) if accelerator else loader

    def _prompt(self, row: Mapping[str, Any]) -> str:
        columns = self._columns
        task = columns.get("instruction") or row[columns["system_column_name"]]
        given = row.get(columns.get("user_column_name") or "") or ""
        lead = "Below is an instruction that describes a task"
        lead += ", paired with an input that provides further context" if given else ""
        ask = "Write a response that appropriately completes the request."
        inner = f"### Input:\n{given}\n\n" if given else ""
        return f"{lead}. {ask}\n\n### Instruction:\n{task}\n\n{inner}### Response:\n"

    def _trained(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        """Return rows as tensors, with labels for prompts and answers."""
        items = []
        for row in rows:
            prompt = self._prompt(row)
            answer = f"{row[self._columns['assistant_column_name']]}\n\n"
            ids = self._ids(prompt + answer)
            left_out = len(self._ids(prompt)) if self._columns.get("mask_prompt") else 0
            labels = [IGNORED] * min(left_out, len(ids)) + ids[left_out:]
            items.append({"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels})
        return self._collate(items)

    def _asked(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        """Return the prompts of rows as tensors, padded on the left as generation needs them."""
        texts = [self._ids(self._prompt(row)) for row in rows]
        batch = self._tokenizer.pad({"input_ids": texts}, padding_side="left", return_tensors="pt")
        batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, IGNORED)
        return batch

    def _ids(self, text: str) -> list[int]:
        longest = self.extra_config.get("max_length")  # None: the longest that the model takes
        ids: list[int] = self._tokenizer(text, truncation=True, max_length=longest)["input_ids"]
        return ids


class MockDataLoader(Stage):
    """Batches of `prompts`, a few fixed ones by default."""

    counts = "item"

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        self._size = int(self.extra_config.get("batch_size", 1))
        self._prompts: Sequence[str] = self.extra_config.get("prompts") or PROMPTS

    def get_batch_size(self) -> int:
        """Return the items of a batch."""
        return self._size

    def get_dataset_splits(self) -> dict[str, int]:
        return {"train": max(1, len(self._prompts) // self._size)}

    def run(self, query: Query) -> dict[int, Query]:
        first = query.batch * self._size
        query.data = [self._prompts[(first + number) % len(self._prompts)] for number in range(self._size)]
        self.count(self._size)
        return super().run(query)
