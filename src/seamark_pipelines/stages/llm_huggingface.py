"""Language models of Hugging Face: LoRA fine-tuning with peft, and generation; their data are in huggingface_data."""

import threading
from collections.abc import Mapping
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.generation.streamers import BaseStreamer

from seamark_pipelines.flow.source_names import get_component
from seamark_pipelines.flow.stage import Stage
from seamark_pipelines.model.graph import PipelineModel, StageModel
from seamark_pipelines.model.query import Query
from seamark_pipelines.stages.answers import texts_of
from seamark_pipelines.stages.huggingface_data import HuggingFaceDataLoader, MockDataLoader
from seamark_pipelines.stages.models import Training, device_of, name_of, synchronize
from seamark_pipelines.stages.seeded import place

__all__ = ["Finetune", "HuggingFaceDataLoader", "Inference", "MockDataLoader"]


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


class _WithTokenizer(Stage):
    """A stage with the tokenizer of a language model."""

    _device: torch.device
    _tokenizer: Any = None

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


class Finetune(_WithTokenizer, Training):
    """Trains LoRA adapters of a language model.

    `model` has the name, and lora_rank, lora_alpha, lora_dropout and lora_attn_modules.
    """

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        self._accelerator: Any = None
        if (self.extra_config.get("accelerator") or {}).get("is_enabled"):
            from accelerate import Accelerator

            self._accelerator = Accelerator(cpu=self._device.type == "cpu")
            self._device = self._accelerator.device

    def get_accelerator(self) -> Any:
        return self._accelerator

    def prepare(self) -> None:
        from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
        from transformers import get_scheduler

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
        self._optimizer = self.optimizer()
        schedule = dict(config.get("lr_scheduler") or {"name": "constant"})
        self._schedule = get_scheduler(
            schedule.pop("name"),
            self._optimizer,
            num_training_steps=self._planned_steps,
            num_warmup_steps=schedule.pop("num_warmup_steps", 0),
            scheduler_specific_kwargs={**schedule.pop("scheduler_specific_kwargs", {}), **schedule} or None,
        )
        if self._accelerator is not None:
            self.model, self._optimizer = self._accelerator.prepare(self.model, self._optimizer)

    def loss(self, batch: Mapping[str, Any]) -> torch.Tensor:
        loss: torch.Tensor = self.model(**batch).loss
        return loss

    def backward(self, loss: torch.Tensor) -> None:
        if self._accelerator is None:
            super().backward(loss)
        else:
            self._accelerator.backward(loss)


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


class Inference(_WithTokenizer):
    """Answers prompts: a text, a list of texts, or a batch of token ids; `data` becomes a list of texts.

    - `model.gen_kwargs` goes to `generate`; `depends_on_id` is the stage whose model this one uses, one at a time.
    - `data_model` (dotted path of a pydantic model) or `choices` (texts): the likeliest of those, by the sum
      of the log-probabilities of its tokens.
    """

    counts = "token"

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        config = self.extra_config
        self._device = device_of(config.get("device"))
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
        ends = getattr(self.model.generation_config, "eos_token_id", None)
        ends = ends if isinstance(ends, list) else [ends]
        self._ends = [end for end in (*ends, self._tokenizer.eos_token_id) if end is not None]

    def run(self, query: Query) -> dict[int, Query]:
        prompts = [query.data] if isinstance(query.data, str) else query.data
        with self._lock, torch.no_grad():
            if self._choices:
                if isinstance(prompts, Mapping):
                    prompts = self._tokenizer.batch_decode(prompts["input_ids"], skip_special_tokens=True)
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
        streamer = None if self._options.get("num_beams", 1) > 1 else _FirstToken(self)  # beams have no first token
        ids = self.model.generate(**given, pad_token_id=pad, streamer=streamer, **self._options)
        ids = ids[:, given["input_ids"].shape[1] :]
        ends = torch.isin(ids, torch.tensor(self._ends, device=ids.device)).int()
        self.count(int((ends.cumsum(-1) - ends == 0).sum()))
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
        first, longest = len(given), max(map(len, answers))
        logits = self.model(ids.to(device), attention_mask=mask.to(device), logits_to_keep=longest + 1).logits
        chances = logits.float().log_softmax(-1).cpu()
        sums = [
            float(chances[number, : len(answer)].gather(1, rows[number][first:, None]).sum())
            for number, answer in enumerate(answers)
        ]
        self.first_token()
        best = max(range(len(answers)), key=sums.__getitem__)
        self.count(len(answers[best]))
        text = self._choices[best]
        return text if self._structure is None else self._structure.model_validate_json(text)
