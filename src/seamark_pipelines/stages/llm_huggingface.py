"""Language models of Hugging Face: batches of a data set, LoRA fine-tuning with peft, generation."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, get_scheduler
from transformers.generation.streamers import BaseStreamer

from seamark_pipelines.flow.source_names import get_component
from seamark_pipelines.flow.stage import Stage
from seamark_pipelines.model.graph import PipelineModel, StageModel
from seamark_pipelines.model.query import Query
from seamark_pipelines.stages.answers import texts_of
from seamark_pipelines.stages.models import Batches, device_of, made, name_of, splits_of, synchronize
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
    return load_dataset(name, **({"name": config["subset"]} if config.get("subset") else {}), split=split)


def tokenizer_of(config: Mapping[str, Any]) -> Any:
    """Return the tokenizer of a model, with a padding token."""
    tokenizer = AutoTokenizer.from_pretrained(place(name_of(config)))
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def model_of(config: Mapping[str, Any], device: torch.device) -> Any:
    """Return the language model of a configuration, in its `dtype` (float32 by default) or in 4 bits (`quantize`)."""
    options: dict[str, Any] = {"dtype": get_component(str(config.get("dtype", "torch.float32")))}
    model = config.get("model")
    if isinstance(model, Mapping) and model.get("quantize"):
        from transformers import BitsAndBytesConfig

        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
        options["device_map"] = {"": device}
        return AutoModelForCausalLM.from_pretrained(place(name_of(config)), **options)
    return AutoModelForCausalLM.from_pretrained(place(name_of(config)), **options).to(device)


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
        longest = self.extra_config.get("max_length")
        ids: list[int] = self._tokenizer(text, truncation=longest is not None, max_length=longest)["input_ids"]
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


class _OfModel(Stage):
    """A stage with a language model and its tokenizer."""

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        self._device = device_of(self.extra_config.get("device"))
        self._tokenizer: Any = None

    def get_device(self) -> torch.device:
        """Return the device of the model."""
        return self._device

    def get_tokenizer(self) -> Any:
        """Return the tokenizer of the model."""
        if self._tokenizer is None:
            self._tokenizer = tokenizer_of(self.extra_config)
        return self._tokenizer

    def get_accelerator(self) -> Any:
        """Return the accelerator that batches are prepared with, None without one."""
        return None


class Finetune(_OfModel):
    """Trains LoRA adapters of a language model: one step of the optimizer in `gradient_accumulation_steps` queries.

    `model` has the name, and lora_rank, lora_alpha, lora_dropout and lora_attn_modules; `data` becomes the loss.
    Queries of a split other than `train` are evaluated without gradients.
    """

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        config = self.extra_config
        self._every = int(config.get("gradient_accumulation_steps", 1))
        self._most = pipeline_config.loadgen.max_queries
        self._accelerator: Any = None
        if (config.get("accelerator") or {}).get("is_enabled"):
            from accelerate import Accelerator

            self._accelerator = Accelerator(cpu=self._device.type == "cpu")
            self._device = self._accelerator.device
        self.model: Any = None
        self.steps = 0
        self._queries = 0

    def get_accelerator(self) -> Any:
        return self._accelerator

    def prepare(self) -> None:
        from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

        config, options = self.extra_config, self.extra_config["model"]
        torch.manual_seed(int(config.get("seed", 1)))
        base = model_of(config, self._device)
        if options.get("quantize"):
            base = prepare_model_for_kbit_training(base, use_gradient_checkpointing=True)
        lora = LoraConfig(
            r=options.get("lora_rank", 8),
            lora_alpha=options.get("lora_alpha", 16),
            lora_dropout=options.get("lora_dropout", 0.0),
            target_modules=options.get("lora_attn_modules", "all-linear"),
            bias="none",
            task_type="CAUSAL_LM",
        )
        self.model = get_peft_model(base, lora)
        trained = [weights for weights in self.model.parameters() if weights.requires_grad]
        self._optimizer = made(config.get("optimizer") or {"component": "torch.optim.AdamW", "lr": 3e-4}, trained)
        schedule = dict(config.get("lr_scheduler") or {"name": "constant"})
        self._schedule = get_scheduler(
            schedule.pop("name"),
            self._optimizer,
            num_training_steps=max(1, self._most // self._every),
            num_warmup_steps=schedule.pop("num_warmup_steps", 0),
            scheduler_specific_kwargs=schedule or None,
        )
        if self._accelerator is not None:
            self.model, self._optimizer = self._accelerator.prepare(self.model, self._optimizer)

    def run(self, query: Query) -> dict[int, Query]:
        batch = {name: value.to(self._device) for name, value in query.data.items()}
        training = query.split.startswith("train")
        self.model.train(training)
        with torch.set_grad_enabled(training):
            loss = self.model(**batch).loss
        if training:
            self._learn(loss / self._every)
        synchronize(self._device)
        query.data = loss.item()
        return super().run(query)

    def _learn(self, loss: torch.Tensor) -> None:
        if self._accelerator is not None:
            self._accelerator.backward(loss)
        else:
            loss.backward()
        self._queries += 1
        if self._queries % self._every == 0:
            self._optimizer.step()
            self._schedule.step()
            self._optimizer.zero_grad(set_to_none=True)
            self.steps += 1


class _FirstToken(BaseStreamer):  # type: ignore[misc]
    """Tells a stage when the first token is there: the second call, after that with the prompt."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._calls = 0

    def put(self, value: torch.Tensor) -> None:
        self._calls += 1
        if self._calls == 2:
            self._stage.first_token()

    def end(self) -> None:
        """Do nothing."""


class Inference(_OfModel):
    """Answers prompts: a text, a list of texts, or a batch of token ids; `data` becomes a list of texts.

    - `model.gen_kwargs` goes to `generate`; `depends_on_id` is the stage whose model this one uses, one at a time.
    - `data_model` (dotted path of a pydantic model) or `choices` (texts): the likeliest of those, by the sum
      of the log-probabilities of its tokens.
    """

    counts = "token"

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        config = self.extra_config
        self._owner: int | None = config.get("depends_on_id")
        self._lock = threading.Lock()
        self.model: Any = None
        options = config.get("model")
        self._options: dict[str, Any] = dict(options.get("gen_kwargs") or {}) if isinstance(options, Mapping) else {}
        self._options.setdefault("max_new_tokens", 20)
        if isinstance(options, Mapping) and "temperature" in options:
            sampled = float(options["temperature"]) > 0
            self._options.setdefault("do_sample", sampled)
            if sampled:
                self._options.setdefault("temperature", float(options["temperature"]))
        self._structure = get_component(config["data_model"]) if config.get("data_model") else None
        self._choices: list[str] = list(config.get("choices") or ())
        if self._structure is not None:
            self._choices = texts_of(self._structure)

    def get_tokenizer(self) -> Any:
        return super().get_tokenizer() if self._owner is None else self.dispatch_call(self._owner, "get_tokenizer")

    def get_model_lock(self) -> tuple[Any, threading.Lock]:
        """Return the model, and the lock that its users take in turns."""
        return self.model, self._lock

    def prepare(self) -> None:
        if self._owner is None:
            torch.manual_seed(int(self.extra_config.get("seed", 1)))
            self.model = model_of(self.extra_config, self._device).eval()

    def pre_run(self) -> None:
        if self._owner is not None:
            self.model, self._lock = self.dispatch_call(self._owner, "get_model_lock")
        self._tokenizer = self.get_tokenizer()

    def run(self, query: Query) -> dict[int, Query]:
        prompts = [query.data] if isinstance(query.data, str) else query.data
        with self._lock, torch.no_grad():
            if self._choices:
                query.data = [self._likeliest(prompt) for prompt in prompts]
            else:
                query.data = self._generated(prompts)
            synchronize(self.model.device)
        return super().run(query)

    def _generated(self, prompts: Any) -> list[str]:
        if isinstance(prompts, Mapping):
            given = {name: prompts[name].to(self.model.device) for name in ("input_ids", "attention_mask")}
        else:
            tokens = self._tokenizer(list(prompts), return_tensors="pt", padding=True, padding_side="left")
            given = {name: tokens[name].to(self.model.device) for name in ("input_ids", "attention_mask")}
        pad = self._tokenizer.pad_token_id
        ids = self.model.generate(**given, pad_token_id=pad, streamer=_FirstToken(self), **self._options)
        ids = ids[:, given["input_ids"].shape[1] :]
        ends = (ids == self._tokenizer.eos_token_id).int().cumsum(-1)
        self.count(int(((ends == 0) | ((ends == 1) & (ids == self._tokenizer.eos_token_id))).sum()))
        texts: list[str] = self._tokenizer.batch_decode(ids, skip_special_tokens=True)
        return texts

    def _likeliest(self, prompt: str) -> Any:
        """Return the allowed answer with the largest probability after a prompt."""
        given = self._tokenizer(prompt)["input_ids"]
        answers = [self._tokenizer(text, add_special_tokens=False)["input_ids"] for text in self._choices]
        rows = [torch.tensor(given + answer) for answer in answers]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self._tokenizer.pad_token_id)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        device = self.model.device
        chances = self.model(ids.to(device), attention_mask=mask.to(device)).logits.float().log_softmax(-1).cpu()
        first = len(given)
        sums = [
            float(chances[number, first - 1 : first - 1 + len(answer)].gather(1, rows[number][first:, None]).sum())
            for number, answer in enumerate(answers)
        ]
        self.first_token()
        best = max(range(len(answers)), key=sums.__getitem__)
        self.count(len(answers[best]))
        text = self._choices[best]
        return text if self._structure is None else self._structure.model_validate_json(text)
