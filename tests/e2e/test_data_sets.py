"""A data set is sent to a server, named in meta.json, and made once for all trials of a run."""

import hashlib
import json

import h5py
import numpy as np
import pytest

pytestmark = [pytest.mark.services, pytest.mark.e2e]


@pytest.mark.covers("E-FR02", "E-CFG", "E-FR14", "E-RISK")
def test_a_scenario_sends_the_prompts_of_its_data_set_and_says_so_with_their_licence(study):
    (study.root / "data").mkdir()
    prompts = study.root / "data" / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": " ".join(["abc"] * n)}) + "\n" for n in range(1, 30)))
    (study.root / "data" / "LICENSE").write_text("CC0-1.0\n")
    with (study.root / "config/sites/local.yaml").open("a") as site:
        site.write("paths: {data: .sets}\n")
    load = {"component": "inference", "service": "known", "prompt_len_shape": "dataset", "gen_tokens": 2}
    study.write(workload=load | {"ttft_ms": 1.0}, artifacts={"dataset": "data/prompts.jsonl"})
    done = study.bench("submit", "-c", "config/scenarios/try.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    trials = list(study.trials())
    assert len(trials) == 4
    for trial in trials:
        said = json.loads((trial / "meta.json").read_text())["dataset"]
        sha = hashlib.sha256(prompts.read_bytes()).hexdigest()
        assert (said["name"], said["sha256"], said["licence"]) == ("prompts.jsonl", sha, "CC0-1.0")
        assert (said["kind"], said["forms"], said["rows"], said["left_out"]) == ("prompts", ["plain"], 29, 0)
        # the server counts words, and each of these is as long as a token is taken to be
        quality = json.loads((trial / "load.json").read_text())["quality"]
        assert quality == {"prompt_tokens_ratio": 1.0, "prompt_tokens_right_ratio": 1.0}
    assert len(list((study.root / ".sets").iterdir())) == 1
    prompts.write_text('"another"\n')
    assert study.bench("submit", "-c", "config/scenarios/try.yaml").returncode == 2


@pytest.mark.sweep
@pytest.mark.covers("E-FR23")
def test_faiss_finds_the_neighbours_of_a_file_of_ann_benchmarks_ties_included(study):
    rng = np.random.default_rng(5)
    vectors, queries = (rng.integers(0, 5, (rows, 6)).astype(np.float32) for rows in (400, 30))
    squared = ((queries[:, None] - vectors) ** 2).sum(axis=2)
    with h5py.File(study.root / "set.hdf5", "w") as file:
        file.attrs["distance"] = "euclidean"
        parts = {"train": vectors, "test": queries, "neighbors": np.argsort(squared, axis=1)[:, :100]}
        for name, array in parts.items():
            file[name] = array
    with (study.root / "config/sites/local.yaml").open("a") as site:
        site.write("paths: {data: .sets}\n")
    load = {"component": "vectordb", "service": "faiss", "dataset": "set.hdf5", "index": "flat", "k": 10}
    study.write(workload=load, repetitions=1)
    done = study.bench("submit", "-c", "config/scenarios/try.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    for trial in study.trials():
        assert json.loads((trial / "load.json").read_text())["quality"]["recall_at_10"] == 1.0
        said = json.loads((trial / "meta.json").read_text())["dataset"]
        assert (said["name"], said["rows"], said["dimensions"], said["queries"]) == ("set.hdf5", 400, 6, 30)
