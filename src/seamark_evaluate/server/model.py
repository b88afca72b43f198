"""A model of transformers on a device, its tokenizer, and what is tried before it is served."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from seamark_evaluate.server.arguments import Arguments
from seamark_evaluate.server.attention import NAME, Pass, register
from seamark_evaluate.server.errors import (
    GENERATION_FAILED,
    GPU_ERROR,
    MODEL_LOAD_ERROR,
    MODEL_NOT_FOUND,
    TOKENIZER_ERROR,
    StartError,
    category_of,
)
from seamark_evaluate.server.key_value_cache import KeyValueCache, keeps_keys_and_values_alone

SHARED_OPTIONS = ("revision", "trust_remote_code", "cache_dir", "token")
"""Options of a model that its tokenizer has too, unless it has its own: both are of one repository."""


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model with its tokenizer. An answer ends at any of `end_tokens`."""

    network: Any
    tokenizer: Any
    device: torch.device
    layers: int
    vocabulary: int
    max_model_len: int
    end_tokens: frozenset[int]

    def logits(self, ids: Sequence[int], cache: KeyValueCache, step: Pass | None) -> torch.Tensor:
        """Compute tokens after the positions of `cache`, which takes them up; return the last one's logits,
        [vocabulary]."""
        with torch.inference_mode():
            inputs = torch.tensor([list(ids)], dtype=torch.long, device=self.device)
            output = self.network(
                input_ids=inputs, past_key_values=cache, use_cache=True, logits_to_keep=1, seamark=step
            )
            return output.logits[0, -1]  # type: ignore[no-any-return, unused-ignore]


def load(arguments: Arguments) -> LoadedModel:
    """Load a model and its tokenizer, and try them as far as `validate` says. Raises StartError with a category."""
    register()
    logging.disable_progress_bar()
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    name = arguments.model
    options = {"trust_remote_code": False, **arguments.model_options}  # unset, transformers would ask a terminal
    device = _device(arguments.device)
    _require_folder(name)
    with _failures(name, "configuration", MODEL_NOT_FOUND, MODEL_LOAD_ERROR):
        config = AutoConfig.from_pretrained(name, **options)
        text = config.get_text_config()
        if not keeps_keys_and_values_alone(text):
            raise StartError(MODEL_LOAD_ERROR, f"--model {name}: its layers keep other states than keys and values")
    max_model_len = _max_model_len(name, text, arguments.max_model_len)
    with _failures(name, "tokenizer", TOKENIZER_ERROR, TOKENIZER_ERROR):
        shared = {key: value for key, value in options.items() if key in SHARED_OPTIONS}
        tokenizer = AutoTokenizer.from_pretrained(name, **{**shared, **arguments.tokenizer_options})
        if not tokenizer.is_fast:
            raise StartError(TOKENIZER_ERROR, f"--model {name}: its tokenizer has no tokenizer.json")
    with _failures(name, "model", MODEL_NOT_FOUND, MODEL_LOAD_ERROR):
        network, loaded = AutoModelForCausalLM.from_pretrained(
            name,
            dtype=arguments.dtype,
            attn_implementation=NAME,
            output_loading_info=True,
            **options,
        )
        network = network.to(device).eval()
    model = LoadedModel(
        network=network,
        tokenizer=tokenizer,
        device=device,
        layers=text.num_hidden_layers,
        vocabulary=text.vocab_size,
        max_model_len=max_model_len,
        end_tokens=_end_tokens(network, tokenizer),
    )
    if arguments.validate != "none":
        _require_weights(name, loaded)
    if arguments.validate == "token":
        with _failures(name, "first token", GENERATION_FAILED, GENERATION_FAILED):
            _require_token(name, model)
    return model


def _require_folder(name: str) -> None:
    """Refuse a path without a model. Any other name may be one in the cache of Hugging Face."""
    path = Path(name)
    if path.is_dir() and not (path / "config.json").is_file():
        raise StartError(MODEL_NOT_FOUND, f"--model {name}: there is no config.json in this folder")
    if not path.is_dir() and (path.is_absolute() or name.startswith(".")):
        raise StartError(MODEL_NOT_FOUND, f"--model {name}: there is no such folder")


@contextmanager
def _failures(name: str, part: str, missing: str, otherwise: str) -> Iterator[None]:
    """Turn exceptions into a StartError. transformers raises OSError for files that are not there, and for JSON that
    it cannot read, while it handles the decoder's error."""
    try:
        yield
    except StartError:
        raise
    except Exception as error:
        damaged = isinstance(error.__context__, (json.JSONDecodeError, UnicodeDecodeError))
        code = category_of(error, missing if isinstance(error, OSError) and not damaged else otherwise)
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
        raise StartError(code, f"--model {name}: {part}: {reason}") from error


def _require_promised_gpu(name: str) -> None:
    """Refuse the CPU where the place of this server has a GPU: its times would be reported as those of a GPU."""
    promised = os.environ.get("CUDA_VISIBLE_DEVICES", "").strip()
    if name != "auto" or promised in ("", "-1") or torch.cuda.is_available():
        return
    why, remedy = "its driver does not answer", "Look at nvidia-smi"
    if torch.version.cuda is None:
        why, remedy = f"torch {torch.__version__} is a build for the CPU", "Use the service attention_cuda"
    raise StartError(
        GPU_ERROR,
        f"--device auto: this server was promised the GPU {promised} (CUDA_VISIBLE_DEVICES) and sees none: {why}."
        f" {remedy}, or say device: cpu.",
    )


def _device(name: str) -> torch.device:
    _require_promised_gpu(name)
    chosen = ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name
    try:
        device = torch.device(chosen)
        torch.empty(1, device=device)
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise StartError(category_of(error, GPU_ERROR), f"--device {name}: it cannot be used: {reason}") from error
    return device


def _max_model_len(name: str, config: Any, wanted: int | None) -> int:
    own = getattr(config, "max_position_embeddings", None)
    if own is None and wanted is None:
        raise StartError(MODEL_LOAD_ERROR, f"--model {name}: it names no longest prompt. Give --max-model-len.")
    if own is not None and wanted is not None and wanted > own:
        raise StartError(MODEL_LOAD_ERROR, f"--max-model-len {wanted}: this model has positions for {own} tokens.")
    return int(wanted if wanted is not None else own)  # type: ignore[arg-type]


def _end_tokens(network: Any, tokenizer: Any) -> frozenset[int]:
    """Return the end tokens of the model's generation_config, as transformers' generate() has them, or the
    tokenizer's."""
    ends = network.generation_config.eos_token_id
    if ends is None:
        ends = tokenizer.eos_token_id
    return frozenset(() if ends is None else ends if isinstance(ends, (list, tuple)) else (ends,))


def _require_weights(name: str, loaded: Any) -> None:
    """Refuse a model of which transformers made up weights: its answers would be nonsense without an error."""
    made_up = sorted({str(key) for kind in ("missing_keys", "mismatched_keys") for key in loaded[kind]})
    if made_up:
        named = ", ".join(made_up[:3]) + (", ..." if len(made_up) > 3 else "")
        raise StartError(MODEL_LOAD_ERROR, f"--model {name}: its files lack {len(made_up)} weights: {named}")


def _require_token(name: str, model: LoadedModel) -> None:
    """Compute one token, and refuse a model whose logits are not finite."""
    cache = KeyValueCache(model.layers)
    logits = model.logits([min(1, model.vocabulary - 1)], cache, None)
    if not bool(torch.isfinite(logits).any()) or bool(torch.isnan(logits).any()):
        raise StartError(MODEL_LOAD_ERROR, f"--model {name}: its first token has no finite logits")
    model.tokenizer.decode([int(logits.argmax())])
