"""What test_families.py asks of stages in the environment `pipelines`. Every answer is JSON."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from forked_answers import TRANSFORMERS

from seamark_pipelines.config.read import read_pipelines
from seamark_pipelines.flow.flow import Flow
from seamark_pipelines.flow.source_names import get_component, open_names
from seamark_pipelines.model.graph import LoadGen, PipelineModel, StageModel
from seamark_pipelines.model.query import Query
from seamark_pipelines.stages.seeded import place

torch.set_num_threads(1)
open_names(Path("/"))
PRELOADED = (*TRANSFORMERS, "peft", "accelerate", "datasets", "torchvision")
CONFIGURATIONS = Path(__file__).resolve().parents[2] / "pipeline_configs"


class Opened:
    """A pipeline of a file with its stages prepared, for queries one by one. `settings` are as in a scenario."""

    def __init__(self, name: str, pipeline: int = 0, **settings: Any) -> None:
        model: PipelineModel = read_pipelines(CONFIGURATIONS / name).pipelines[pipeline].with_settings(settings)
        self.stages: dict[int, Any] = {spec.id: get_component(spec.component)(spec, model) for spec in model.stages}
        for stage in self.stages.values():
            stage.stages = self.stages
        for stage in self.stages.values():
            stage.prepare()
        self.splits = self.stages[model.dataset_stage_id].get_dataset_splits()
        self.flow = Flow(model, self.stages, None, timeout_s=100)
        self.flow.start()

    def send(self, count: int, split: str = "train") -> list[Query]:
        """Return the queries at their end. Raises RuntimeError for one that failed."""
        found = []
        for number in range(count):
            query = Query(split=split, batch=number, query_submitted_timestamp=0.0, query_id=number)
            ticket = self.flow.call(query, number)
            if ticket.error:
                raise RuntimeError(ticket.error)
            found.append(ticket.query)
        return found


def weights_of(model: Any, *, trained: bool) -> dict[str, torch.Tensor]:
    named = model.named_parameters()
    return {name: weights.detach().clone() for name, weights in named if weights.requires_grad == trained}


def same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def batches(loader: Any, count: int, split: str = "train") -> list[Any]:
    """Return what a loader's queries have as data."""
    queries = [Query(split=split, batch=number, query_submitted_timestamp=0.0) for number in range(count)]
    for query in queries:
        loader.run(query)
    return [query.data for query in queries]


def trained(opened: Opened, plain: Opened, count: int, losses_of: Any) -> dict[str, Any]:
    """Train a pipeline, and its twin by a plain loop of the twin's own optimizer; say what came of both."""
    stage, loop, every = (
        opened.stages[1],
        plain.stages[1],
        opened.stages[1].extra_config["gradient_accumulation_steps"],
    )
    frozen, adapters = weights_of(stage.model, trained=False), weights_of(stage.model, trained=True)
    losses = [query.data for query in opened.send(count)]
    optimizer = torch.optim.AdamW(
        [weights for weights in loop.model.parameters() if weights.requires_grad], weight_decay=0.01, lr=3e-4
    )
    loop.model.train()
    for number, batch in enumerate(batches(plain.stages[0], count), start=1):
        (losses_of(loop.model, batch) / every).backward()
        if number % every == 0:
            optimizer.step()
            optimizer.zero_grad()
    return {
        "losses": losses,
        "frozen": same(frozen, weights_of(stage.model, trained=False)),
        "moved": not same(adapters, weights_of(stage.model, trained=True)),
        "as the loop": same(weights_of(loop.model, trained=True), weights_of(stage.model, trained=True)),
        "steps": stage.steps,
        "trainable": sum(weights.numel() for weights in adapters.values()),
        "splits": opened.splits,
    }


def fine_tuning(every: int, count: int) -> Any:
    """LoRA with transformers, beside a plain loop and the base model."""
    from transformers import AutoModelForCausalLM

    settings = {
        "stages.1.config.gradient_accumulation_steps": every,
        "stages.1.config.model.lora_dropout": 0.0,
        "stages.1.config.lr_scheduler.name": "constant",
        "stages.1.config.accelerator.is_enabled": False,
        "stages.0.config.dataset.mask_prompt": True,
    }
    opened, plain, third = [Opened("finetune_huggingface.yml", **settings) for _ in range(3)]
    said = trained(opened, plain, count, lambda model, batch: model(**batch).loss)
    base = AutoModelForCausalLM.from_pretrained(place("seeded/llama"), dtype=torch.float32).eval()
    first = batches(third.stages[0], 1)[0]
    with torch.no_grad():
        said["base"] = base(**first).loss.item()
    said["masked"] = float((first["labels"] == -100).float().mean())
    linear = [
        layer for name, layer in base.named_modules() if isinstance(layer, torch.nn.Linear) and name != "lm_head"
    ]
    said["by shapes"] = sum(8 * (layer.in_features + layer.out_features) for layer in linear)
    return said


def accelerated(count: int) -> Any:
    """The shipped configuration as it is, with accelerate."""
    opened = Opened("finetune_huggingface.yml")
    losses = [query.data for query in opened.send(count)]
    return {"losses": losses, "steps": opened.stages[1].steps}


def generation() -> Any:
    """Answers of the stage beside `generate`, and the likeliest of several beside sums of log-probabilities."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    opened = Opened("generation_huggingface.yml")
    found = [query.data for query in opened.send(2, "validation")]
    twin = batches(Opened("generation_huggingface.yml").stages[0], 2, "validation")
    model = AutoModelForCausalLM.from_pretrained(place("seeded/llama"), dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(place("seeded/llama"))
    plain = []
    for batch in twin:
        ids = model.generate(batch["input_ids"], max_new_tokens=16, do_sample=False, pad_token_id=3)
        plain.append(tokenizer.batch_decode(ids[:, batch["input_ids"].shape[1] :], skip_special_tokens=True))
    stage, texts = opened.stages[1], ["yes", "no", "it may well be"]
    stage._choices, prompt = texts, "Is it so?"
    chosen = stage._likeliest(prompt)
    given = tokenizer(prompt)["input_ids"]
    sums = []
    for text in texts:
        answer = tokenizer(text, add_special_tokens=False)["input_ids"]
        chances = model(torch.tensor([given + answer])).logits[0].log_softmax(-1)
        sums.append(sum(float(chances[len(given) - 1 + at, token]) for at, token in enumerate(answer)))
    together = stage._generated(["one two three four five", "six"])
    alone = [stage._generated([text])[0] for text in ("one two three four five", "six")]
    return {
        "found": found,
        "plain": plain,
        "chosen": chosen,
        "likeliest": texts[max(range(3), key=sums.__getitem__)],
        "together": together,
        "alone": alone,
    }


def with_torchtune(count: int) -> Any:
    """LoRA with torchtune beside a plain loop, and its generation beside `generate` of transformers."""
    from transformers import AutoModelForCausalLM

    settings = {"stages.1.config.lr_scheduler": None}
    opened, plain, third = [Opened("finetune_torchtune.yml", **settings) for _ in range(3)]

    def losses_of(model: Any, batch: Any) -> Any:
        scores = model(batch["tokens"])
        return torch.nn.functional.cross_entropy(scores[:, :-1].transpose(1, 2), batch["labels"][:, 1:])

    said = trained(opened, plain, count, losses_of)
    base = AutoModelForCausalLM.from_pretrained(place("seeded/qwen"), dtype=torch.float32).eval()
    first = batches(third.stages[0], 1)[0]
    with torch.no_grad():
        scores = base(first["tokens"]).logits
        said["base"] = losses_of(lambda _: scores, first).item()
    source = third.stages[0]
    config = {
        "device": "cpu",
        "dtype": "torch.float32",
        "max_new_tokens": 6,
        "temperature": 0.0,
        "top_k": 1,
        "model": {
            **{k: v for k, v in third.stages[1].extra_config["model"].items() if "lora" not in k},
            "component": "torchtune.models.qwen2.qwen2",
            "KV_cache": True,
        },
        "checkpointer": third.stages[1].extra_config["checkpointer"],
    }
    spec = StageModel(id=1, name="inference", slug="inference", component="", config=config)
    model = PipelineModel(
        name="p", slug="p", inputs=(0,), outputs=(1,), dataset_stage_id=0, loadgen=LoadGen(), stages=(spec,)
    )
    stage = get_component("stages.llm_torchtune.Inference")(spec, model)
    stage.stages = {0: source, 1: stage}
    stage.prepare()
    prompt = first["tokens"][:, :12]
    answers = []
    for _ in range(2):  # the cache of keys and values is begun anew
        query = Query(split="val", batch=0, query_submitted_timestamp=0.0, data={"tokens": prompt})
        stage.run(query)
        answers.append(query.data)
    ids = base.generate(prompt, max_new_tokens=6, do_sample=False, eos_token_id=None)
    said["answers"], said["plain"] = answers, [source._tokenizer.decode(row.tolist()) for row in ids[:, 12:]]
    return said


def vision() -> Any:
    """Transfer learning: losses, and that only the head moved; heads of several names."""
    opened = Opened("torchvision_mixed.yml", 1, **{"stages.2.config.optimizer.lr": 0.02})
    stage = opened.stages[2]
    before = {name: value.clone() for name, value in stage.model.state_dict().items()}
    losses = [sum(query.data for query in opened.send(16)) for _ in range(3)]  # of each epoch
    moved = [name for name, value in stage.model.state_dict().items() if not torch.equal(before[name], value)]
    guesses = Opened("torchvision_mixed.yml", 0).send(3, "val")
    heads = {}
    for name in ("resnet18", "mobilenet_v3_small", "vit_b_16", "squeezenet1_1"):
        spec = {"component": f"torchvision.models.{name}", "replace_classifier": True, "num_classes": 3}
        settings = {"stages.2.config.model": spec, "stages.2.config.optimizer": {"component": "torch.optim.SGD"}}
        try:
            model = Opened("torchvision_mixed.yml", 1, **settings).stages[2].model
            heads[name] = [name for name, weights in model.named_parameters() if weights.requires_grad]
        except ValueError as error:
            heads[name] = [str(error)]
    return {
        "splits": opened.splits,
        "losses": losses,
        "moved": moved,
        "classes": [query.data for query in guesses],
        "heads": heads,
    }


def retrieval() -> Any:
    """The document that answers each question, by both indexes; what SQL finds; the length of filler."""
    from seamark_pipelines.stages.huggingface_data import rows_of
    from seamark_pipelines.stages.rag_prompts import documents_of
    from seamark_pipelines.stages.self_rag import ChromaRetriever, Retriever, SQLiteSearch

    questions = list(rows_of({"name": "seeded/questions/test.jsonl"}, "test"))
    corpus = {"corpus_dataset": {"name": "seeded/passages", "text_column": "passage"}, "top_k": 3}
    found = {}
    for kind in (Retriever, ChromaRetriever):
        stage = _alone(kind, corpus)
        right = 0
        for row in questions:
            query = Query(split="val", batch=0, query_submitted_timestamp=0.0, data=row["question"])
            stage.run(query)
            right += row["answers"][0] in query.data[0]
        found[kind.__name__] = right / len(questions)
    twice = Query(split="val", batch=0, query_submitted_timestamp=0.0, data=questions[0]["question"])
    stage.run(twice)
    first = list(twice.data)
    twice.data = questions[1]["question"]
    stage.run(twice)
    search = _alone(SQLiteSearch, {"db_path": "seeded/accounts/accounts.sqlite"})
    search.pre_run()
    sums = []
    for text in ("SELECT sum(amount) FROM invoices WHERE customer = 3", "DROP TABLE invoices", "no SQL"):
        query = Query(split="val", batch=0, query_submitted_timestamp=0.0, data=[text])
        search.run(query)
        sums.append(query.data)
    accounts = list(rows_of({"name": "seeded/questions/accounts.jsonl"}, "train"))
    return {
        "right": found,
        "added": twice.data[: len(first)] == first and len(twice.data) > len(first),
        "sums": sums,
        "total": accounts[2]["answers"],
        "documents": documents_of(twice)[:11],
    }


def self_rag(count: int) -> Any:
    """The shipped graph: how far its queries come, and prompts with and without documents."""
    from seamark_pipelines.stages.self_rag import AnswerGeneratorFormatter

    opened = Opened("self_rag.yml")
    queries = opened.send(count, "val")
    to_sql = {"stages.1.config.data_model": None, "stages.1.config.choices": ["sqlite"]}
    right = {
        "stages.7.config.choices": ["yes"],
        "stages.12.config.choices": ["no"],
        "stages.15.config.choices": ["yes"],
    }
    wrong = {"stages.7.config.choices": ["no"]}
    visits = []
    for verdicts in (right, wrong):
        [query] = Opened("self_rag.yml", **to_sql, **verdicts).send(1, "val")
        assert query.ticket is not None
        visits.append([query.ticket.visits.get(number, 0) for number in range(22)])
        visits.append(query.data)
    tokenizer = opened.stages[1].get_tokenizer()
    lengths = {}
    for kind in ("retrieved", "none", "filler"):
        stage = _alone(AnswerGeneratorFormatter, {"tokenizer_stage_id": 0, "documents": kind}, prepare=False)
        stage._tokenizer, stage._documents = tokenizer, kind
        query = Query(split="val", batch=0, query_submitted_timestamp=0.0)
        query.context = {"question": "What is it?", "retrieved_documents": ["It is a long story of words."] * 5}
        stage.run(query)
        lengths[kind] = len(tokenizer(query.data)["input_ids"])
    return {
        "splits": opened.splits,
        "visits": visits,
        "ends": [[query.context["question"], str(query.data)] for query in queries],
        "lengths": lengths,
    }


def _alone(kind: Any, config: Mapping[str, Any], prepare: bool = True) -> Any:
    spec = StageModel(id=0, name="s", slug="s", component="", config=config)
    model = PipelineModel(
        name="p", slug="p", inputs=(0,), outputs=(0,), dataset_stage_id=0, loadgen=LoadGen(), stages=(spec,)
    )
    stage = kind(spec, model)
    if prepare:
        stage.prepare()
    return stage
