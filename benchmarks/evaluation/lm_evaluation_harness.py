"""Samples per second of an evaluation, Seamark and lm-evaluation-harness (`hf`) in turn, with the same answers.

    python benchmarks/evaluation/lm_evaluation_harness.py --rounds 5

Both have the same Llama of random weights on the CPU, float32, batch 1, greedy, the same number of threads, and the
same prompts: contexts of words with one question each, then with eight. lm-evaluation-harness (0.4.13, from PyPI, in
an environment of its own) is called through `HFLM.generate_until`, after it was loaded. Seamark's time is that of a
load: HTTP, driver and kept replies included; its server holds the model already too.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("SEAMARK_CACHE") or Path.home() / ".cache" / "seamark")
PINS = ("torch==2.13.0", "transformers==5.19.0", "lm-eval==0.4.13", "accelerate==1.15.0")
ONE_RATIO, EIGHT_RATIO = 0.95, 3.0
START_S = 120.0
MODEL = """
import sys, torch
from transformers import LlamaConfig, LlamaForCausalLM
from seamark_evaluate.attention.known_reader import word_tokenizer
from seamark_evaluate.attention.known_answers import needle_vocabulary
folder, longest = sys.argv[1], int(sys.argv[2])
tokenizer = word_tokenizer(needle_vocabulary(128), longest)
torch.manual_seed(1)
config = LlamaConfig(
    vocab_size=len(tokenizer), bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
    pad_token_id=tokenizer.pad_token_id, hidden_size=256, intermediate_size=688, num_hidden_layers=6,
    num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=longest, initializer_range=0.1,
    tie_word_embeddings=False)
LlamaForCausalLM(config).save_pretrained(folder)
tokenizer.save_pretrained(folder)
"""
HARNESS = """
import json, os, sys, time
import torch
torch.set_num_threads(int(sys.argv[2]))
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
model = HFLM(pretrained=sys.argv[1], device="cpu", dtype="float32", batch_size=1, max_length=int(sys.argv[3]))
for line in sys.stdin:
    asked = json.loads(line)
    arguments = {"until": ["<never>"], "max_gen_toks": asked["tokens"], "do_sample": False, "temperature": 0.0}
    prompts = enumerate(asked["prompts"])
    wanted = [Instance("generate_until", {}, (prompt, dict(arguments)), k) for k, prompt in prompts]
    began = time.perf_counter()
    answers = model.generate_until(wanted, disable_tqdm=True)
    print(json.dumps({"seconds": time.perf_counter() - began, "answers": answers}), file=sys.__stdout__, flush=True)
"""
BENCHMARK = """\
name: {name}
summary: Needles with longer answers, for the comparison.
licence: Apache-2.0
references: []
source: {{made_by: "seamark_evaluate.tasks.benchmarks.needles:rows"}}
template: "{{context}} {{question}}"
max_new_tokens: {tokens}
scorer: exact_word
length_words: {length}
questions: {questions}
settings: {{depths: {depths}, keys: 128}}
"""


def main() -> None:
    """Read the arguments, take turns, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--questions", type=int, default=16)
    parser.add_argument("--length", type=int, default=1000, help="words, each one token")
    parser.add_argument("--tokens", type=int, default=16, help="of an answer")
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, longest = Path(name), asked.length + asked.tokens + 64
        python = evaluation_python()
        make_model(python, folder, longest)
        met = True
        with server(python, folder, longest, asked.threads) as port, harness(folder, longest, asked.threads) as peer:
            for count, wanted in ((1, ONE_RATIO), (8, EIGHT_RATIO)):
                met &= compared(folder, python, port, peer, asked, count, wanted)
    print("targets met" if met else "a target is missed")


def make_model(python: Path, folder: Path, longest: int) -> None:
    """Write the model of both into `folder/model`, for prompts of at most `longest` tokens with their answers."""
    command = [python, "-c", MODEL, folder / "model", str(longest)]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=True)


def compared(
    folder: Path,
    python: Path,
    port: int,
    peer: "subprocess.Popen[str]",
    asked: argparse.Namespace,
    count: int,
    wanted: float,
) -> bool:
    """Measure both on contexts of `count` questions in turn, print a line; return whether the target is met."""
    depths = [round(k / max(count - 1, 1), 3) for k in range(count)] if count > 1 else [0.5]
    text = BENCHMARK.format(
        name=f"own{count}", tokens=asked.tokens, length=asked.length, questions=asked.questions, depths=depths
    )
    settings, prompts = planned(folder, f"own{count}", text)
    rates: dict[str, list[float]] = {"seamark": [], "harness": []}
    same = 0
    for turn in range(asked.rounds + 1):
        found = {}
        for name in ("seamark", "harness") if turn % 2 else ("harness", "seamark"):
            if name == "seamark":
                found[name] = by_seamark(folder, python, port, settings, turn)
            else:
                found[name] = by_harness(peer, prompts, asked.tokens)
        if turn:  # the first is a warm-up
            for name, (seconds, _) in found.items():
                rates[name].append(len(prompts) / seconds)
        same = sum(one == other for one, other in zip(found["seamark"][1], found["harness"][1], strict=True))
    ratios = [ours / theirs for ours, theirs in zip(rates["seamark"], rates["harness"], strict=True)]
    met = statistics.median(ratios) >= wanted and same == len(prompts)
    print(
        f"{len(prompts)} questions, {count} a context of {asked.length} tokens:"
        f" seamark {statistics.median(rates['seamark']):.2f}, lm-evaluation-harness"
        f" {statistics.median(rates['harness']):.2f} samples/s; ratio of a round: least {min(ratios):.2f}, median"
        f" {statistics.median(ratios):.2f}, most {max(ratios):.2f} (target {wanted:g}); same answers: {same} of"
        f" {len(prompts)}",
        flush=True,
    )
    return met


def planned(folder: Path, name: str, text: str, method: str = "dense") -> tuple[dict[str, Any], Sequence[str]]:
    """Return the settings of a trial of a benchmark, and its prompts in the order of the questions."""
    from seamark.model.scenario import filled
    from seamark.planning.study import Study
    from seamark_evaluate.drivers.questions import asked_of

    (folder / "config/benchmarks").mkdir(parents=True, exist_ok=True)
    (folder / f"config/benchmarks/{name}.yaml").write_text(text)
    scenario = {
        "scenario": name,
        "workload": {
            "service": "attention",
            "model": str(folder / "model"),
            "task": name,
            "concurrency": 1,
            "method": method,
        },
    }
    (folder / f"{name}.yaml").write_text(json.dumps(scenario))
    before = Path.cwd()
    os.chdir(folder)
    try:
        study = Study.at(folder, scenario=f"{name}.yaml", site="local")
        [trial] = study.plan.trials[:1]
    finally:
        os.chdir(before)
    return filled(trial.settings), [question.prompt for question in asked_of(trial.settings)]


def by_seamark(
    folder: Path, python: Path, port: int, settings: dict[str, Any], seed: int
) -> tuple[float, Sequence[str]]:
    """Return seconds and answers of a load of Seamark on its server."""
    from seamark.drivers.openai.kept import read_kept
    from seamark.load.coordinator.coordinator import LoadJob, run_load
    from seamark.load.workers.records import read_replies, read_segments

    job = LoadJob(
        driver="seamark_evaluate.drivers.questions:Questions",
        workers="wire",
        settings={**settings, "timeout_s": 600.0},
        seed=seed,
        data=folder,
        ports={"http": port},
        kind="finite",
    )
    with tempfile.TemporaryDirectory(dir=folder) as parts:
        outcome = run_load(job, python, Path(parts) / "parts")
        samples = read_segments(outcome.segments)
        assert not samples["failure"].any(), outcome.reports
        kept = dict(each for path in outcome.replies for each in read_replies(path))
    seconds = float(samples["last_ns"].max() - samples["sent_ns"].min()) / 1e9
    return seconds, [str(read_kept(kept[item]).text).strip() for item in sorted(kept)]


def by_harness(peer: "subprocess.Popen[str]", prompts: Sequence[str], tokens: int) -> tuple[float, Sequence[str]]:
    """Return seconds and answers of lm-evaluation-harness."""
    assert peer.stdin is not None
    assert peer.stdout is not None
    peer.stdin.write(json.dumps({"prompts": prompts, "tokens": tokens}) + "\n")
    peer.stdin.flush()
    found = json.loads(peer.stdout.readline())
    return found["seconds"], [answer.strip() for answer in found["answers"]]


@contextmanager
def server(python: Path, folder: Path, longest: int, threads: int) -> Iterator[int]:
    """Run Seamark's server of the model; give its port."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    command = [python, ROOT / "src/seamark/platform/isolated_main.py", "seamark_evaluate.server.serve"]
    options = {"model": folder / "model", "host": "127.0.0.1", "port": port, "dtype": "float32", "device": "cpu"}
    options |= {"max-model-len": longest, "threads": threads, "prefill-chunk": 4096}
    process = subprocess.Popen([*command, *(f"--{name}={value}" for name, value in options.items())])
    try:
        limit_s = time.monotonic() + START_S
        while not _answers(port):
            assert process.poll() is None, "the server has ended"
            assert time.monotonic() < limit_s, "the server does not answer"
            time.sleep(0.2)
        yield port
    finally:
        process.terminate()
        process.wait()


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


@contextmanager
def harness(folder: Path, longest: int, threads: int) -> Iterator["subprocess.Popen[str]"]:
    """Run lm-evaluation-harness with the model in a process that takes prompts and gives answers."""
    place = CACHE / "peers" / "lm_eval"
    complete = place / ".complete"
    if not complete.exists() or complete.read_text() != "\n".join(PINS):
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        subprocess.run([place / "bin/python", "-m", "pip", "install", "--quiet", *PINS], check=True)
        complete.write_text("\n".join(PINS))
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    command = [place / "bin/python", "-c", HARNESS, folder / "model", str(threads), str(longest)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def evaluation_python() -> Path:
    """Return the interpreter of the environment `evaluation`, made when it is not there."""
    from seamark.services.runtimes.environments import prepare_environment

    return prepare_environment("evaluation", ROOT / "envs", CACHE / "envs") / "bin" / "python"


if __name__ == "__main__":
    main()
