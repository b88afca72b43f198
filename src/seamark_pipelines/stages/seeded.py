"""Models and data made from a seed, for configurations that need no download: `seeded/NAME` where a configuration
has the name or folder of a model or a data set.

Each is made once, in a cache folder that is named by what it is made of, and then only read.
"""

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from random import Random

from seamark.drivers.openai.models import write_tiny
from seamark.errors import did_you_mean

CACHE = Path("~/.cache/seamark/pipelines")
PREFIX = "seeded/"
VERSION = 1
"""Part of each folder's name: another one where what is made has changed."""
SEED = 1
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
PICTURE_PX, CLASSES, TRAIN_PICTURES, VAL_PICTURES = 256, 4, 32, 16
"""Side of a picture, classes of pictures, and pictures of each class in the two splits."""


def place(name: str) -> str:
    """Return the folder of `seeded/NAME`, made first where it is not there; any other name or path as it is.

    Raises ValueError for a NAME that is none of MAKERS.
    """
    if not name.startswith(PREFIX):
        return str(Path(name).expanduser()) if name.startswith(("~", "/", ".")) else name
    inner = name.removeprefix(PREFIX)
    first, _, rest = inner.partition("/")
    if first not in MAKERS:
        raise ValueError(f"'{name}': seeded is one of {', '.join(MAKERS)}.{did_you_mean(first, MAKERS)}")
    folder = CACHE.expanduser() / f"{first}-{VERSION}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f".{first}-", dir=folder.parent))
        try:
            MAKERS[first](new)
            new.chmod(0o755)
            new.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process has made it meanwhile
                raise
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return str(folder / rest)


def _llama(folder: Path) -> None:
    """Write a Llama of random weights, with a byte-level BPE of 32,000 tokens and a chat template."""
    write_tiny(folder, SEED)


def _qwen(folder: Path) -> None:
    """Write a Qwen 2.5 of random weights, with vocab.json and merges.txt where torchtune's tokenizer looks for them.

    Its special tokens have the numbers that they have in Qwen's own vocabulary, so the embedding is as long.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    learnt = Tokenizer(models.BPE())
    learnt.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learnt.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=2000, initial_alphabet=alphabet, show_progress=False)
    learnt.train_from_iterator((row["output"] + " " + row["instruction"] for row in _instructions(400, 3)), trainer)
    learnt.model.save(str(folder))
    whole = PreTrainedTokenizerFast(tokenizer_object=learnt, eos_token="<|endoftext|>", pad_token="<|endoftext|>")
    whole.save_pretrained(folder)
    torch.manual_seed(SEED)
    config = Qwen2Config(
        vocab_size=151936,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        rope_theta=1e6,
        tie_word_embeddings=True,
        bos_token_id=151643,
        eos_token_id=151645,
    )
    Qwen2ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def _instructions(count: int, seed: int) -> Iterator[dict[str, str]]:
    """Yield instructions in Alpaca's columns: words to be repeated, sorted or counted, a third without input."""
    random = Random(seed)
    for number in range(count):
        words = [_word(random) for _ in range(random.randint(3, 12))]
        text = " ".join(words)
        kind = number % 3
        if kind == 0:
            yield {"instruction": "Sort these words.", "input": text, "output": " ".join(sorted(words))}
        elif kind == 1:
            yield {
                "instruction": "Repeat these words in reverse order.",
                "input": text,
                "output": " ".join(reversed(words)),
            }
        else:
            yield {"instruction": f"How many words are in: {text}", "input": "", "output": str(len(words))}


def _write_instructions(folder: Path) -> None:
    """Write splits `train` (512 rows) and `validation` (64 rows) of instructions."""
    _write_rows(folder / "train.jsonl", _instructions(512, SEED))
    _write_rows(folder / "validation.jsonl", _instructions(64, SEED + 1))


def _facts() -> list[tuple[str, str]]:
    random = Random(SEED)
    countries = sorted({_word(random).capitalize() + "ia" for _ in range(300)})[:240]
    return [(country, _word(random).capitalize() + "ton") for country in countries]


def _write_questions(folder: Path) -> None:
    """Write questions, each of which one passage answers (`answers`), and questions that accounts answer by SQL."""
    facts = _facts()
    questions = [
        {"question": f"What is the capital of {country}?", "answers": [city], "passage": number}
        for number, (country, city) in enumerate(facts[:120])
    ]
    _write_rows(folder / "test.jsonl", questions)
    sums = [
        {"question": f"What is the sum of the invoices of customer {number}?", "answers": [str(total)]}
        for number, total in _totals().items()
    ]
    _write_rows(folder / "accounts.jsonl", sums)


def _write_passages(folder: Path) -> None:
    """Write a passage for each fact, and as many that answer nothing."""
    random = Random(SEED + 2)
    rows = [
        {"passage": f"{country} lies between {_word(random)} and {_word(random)}. Its capital is {city}."}
        for country, city in _facts()
    ]
    for _ in range(len(rows)):
        rows.append({"passage": " ".join(_word(random) for _ in range(20)).capitalize() + "."})
    _write_rows(folder / "train.jsonl", rows)


def _invoices() -> list[tuple[int, int]]:
    random = Random(SEED + 3)
    return [(random.randint(1, 20), random.randint(1, 500)) for _ in range(400)]


def _totals() -> dict[int, int]:
    totals: dict[int, int] = {}
    for customer, amount in _invoices():
        totals[customer] = totals.get(customer, 0) + amount
    return dict(sorted(totals.items()))


def _write_accounts(folder: Path) -> None:
    """Write accounts.sqlite: a table of invoices with customer and amount."""
    with sqlite3.connect(folder / "accounts.sqlite") as connection:
        connection.execute("CREATE TABLE invoices (id INTEGER PRIMARY KEY, customer INTEGER, amount INTEGER)")
        connection.executemany("INSERT INTO invoices (customer, amount) VALUES (?, ?)", _invoices())
    connection.close()


def _write_pictures(folder: Path) -> None:
    """Write JPEGs in folders by split and class: stripes of a class's own width and direction, with noise."""
    import numpy as np
    from PIL import Image

    noise = np.random.default_rng(SEED)
    row, column = np.mgrid[0:PICTURE_PX, 0:PICTURE_PX]
    for split, count in {"train": TRAIN_PICTURES, "val": VAL_PICTURES}.items():
        for label in range(CLASSES):
            where = folder / split / f"stripes_{label}"
            where.mkdir(parents=True)
            angle = np.pi * label / CLASSES
            stripes = np.sin((row * np.sin(angle) + column * np.cos(angle)) / (4 + 3 * label))
            for number in range(count):
                pixels = 128 + 80 * stripes[..., None] + noise.normal(0, 25, (PICTURE_PX, PICTURE_PX, 3))
                Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(where / f"{number:03}.jpg", quality=90)


def _word(random: Random) -> str:
    return "".join(random.choices(SYLLABLES, k=random.randint(2, 4)))


def _write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


MAKERS: Mapping[str, Callable[[Path], None]] = {
    "llama": _llama,
    "qwen": _qwen,
    "instructions": _write_instructions,
    "questions": _write_questions,
    "passages": _write_passages,
    "accounts": _write_accounts,
    "pictures": _write_pictures,
}
"""What is made, by the NAME in `seeded/NAME`: writes it into an empty folder."""
