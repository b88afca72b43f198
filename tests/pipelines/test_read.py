"""Pipeline files: what is read, what is passed over, and every mistake at once with its line."""

from pathlib import Path

import numpy as np
import pytest

from seamark.errors import UserError
from seamark_pipelines.config.read import read_pipelines
from seamark_pipelines.flow.schedulers import OWN, load_of
from seamark_pipelines.model.graph import FIRST_SUBMITTED, SINGLE

SAMPLE = """\
name: "phi3_alpaca_qlora_finetune_huggingface"
listeners:
  - smi
  - dcgmi
pipelines:
  - name: Alpaca finetuning
    inputs: [0]
    outputs: [1]
    dataset_stage_id: 0
    loadgen:
      component: loadgen.OfflineLoadScheduler
      is_training: True
      config:
        rate: 1
    stages:
      - name: Stage 1 (e.g., DataLoader)
        id: 0
        outputs: [1]
        component: stages.llm_huggingface.HuggingFaceDataLoader
        config: {batch_size: 4, dataset: {name: yahma/alpaca-cleaned}}
      - name: Stage 1 (e.g. DataLoader)
        id: 1
        component: stages.llm_huggingface.Finetune
        polling_policy: utils.queues.polling.FirstSubmittedPolicy
"""


def read(folder: Path, text: str):
    path = folder / "p.yml"
    path.write_text(text)
    return read_pipelines(path)


def own_classes(folder: Path) -> Path:
    """Write a study's own stages and schedulers, and return its folder."""
    for path, text in {
        "stages/plain.py": "import torch\nclass Plain: ...\n"
        "class Deep(torch.nn.Module): ...\nmade = Late = type('L')\n",
        "stages/mine/__init__.py": "from .inner import *\nfrom .inner import Inner as Renamed\n",
        "stages/mine/inner.py": "from stages.stage import Stage\nclass Inner(Stage): ...\nclass Bare: ...\n",
        "stages/broken.py": "class (:\n",
        "loadgen/schedulers/mine.py": "from .scheduler import LoadScheduler\nclass Empty(LoadScheduler): ...\n"
        "class Mine(LoadScheduler):\n    def generate(self, queue, event): ...\nclass Below(Mine): ...\n",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


@pytest.mark.covers("A2", "A9")
def test_a_file_of_the_original_is_read_with_its_defaults(tmp_path: Path) -> None:
    file = read(tmp_path, SAMPLE)
    [model] = file.pipelines
    assert (file.name, file.listeners) == ("phi3_alpaca_qlora_finetune_huggingface", ("smi", "dcgmi"))
    assert (model.loadgen.queue_depth, model.loadgen.max_queries, model.loadgen.timeout) == (10, 100, 3600.0)
    assert [stage.slug for stage in model.stages] == ["stage_1_e_g_dataloader", "stage_1_e_g_dataloader_2"]
    assert model.stages[0].name == "Stage 1 (e.g., DataLoader)"
    assert [stage.policy for stage in model.stages] == [SINGLE, FIRST_SUBMITTED]
    assert model.stages[0].config["dataset"] == {"name": "yahma/alpaca-cleaned"}
    assert list(file.unread) == ["is_training"]
    assert file.unread["is_training"].endswith("p.yml:12")


@pytest.mark.covers("A4")
@pytest.mark.parametrize(
    ("loadgen", "expected"),
    [
        ("{component: loadgen.OfflineLoadScheduler, config: {rate: 7}}", {"pattern": "closed", "concurrency": 1}),
        ("{component: loadgen.PoissonLoadScheduler}", {"pattern": "poisson", "rate_rps": 3.0, "concurrency": 100}),
        ("{component: loadgen.PoissonLoadScheduler, config: {rate: 50}}", {"pattern": "poisson", "rate_rps": 50.0}),
        ("{component: loadgen.MultiStreamScheduler, config: {interval: 0.1}}", {"rate_rps": 10.0}),
        ("{component: loadgen.SaturatingOfflineScheduler, max_queries: 9}", {"concurrency": 9, "requests": 9}),
        ("{component: loadgen.schedulers.mine.Mine, timeout: 20}", {"duration_s": 20.0}),
    ],
)
def test_a_scheduler_is_the_load_that_it_stands_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loadgen: str, expected: dict[str, object]
) -> None:
    monkeypatch.chdir(own_classes(tmp_path))
    text = (
        SAMPLE[: SAMPLE.index("    loadgen:")] + f"    loadgen: {loadgen}\n" + SAMPLE[SAMPLE.index("    stages:") :]
    )
    [model] = read(tmp_path, text).pipelines
    assert expected.items() <= load_of(model).items()


def test_all_queries_at_once_are_due_at_the_start(tmp_path: Path) -> None:
    text = SAMPLE.replace("OfflineLoadScheduler", "SaturatingOfflineScheduler")
    [model] = read(tmp_path, text).pipelines
    settings = load_of(model) | {"scheduler": "seamark_pipelines.flow.schedulers.SaturatingOfflineScheduler"}
    pattern = OWN.make(settings, 10.0)
    assert pattern is not None
    assert not next(iter(pattern.blocks(np.random.default_rng(1)))).any()


MISTAKES = """\
name: wrong
listeners: [smj]
pipelines:
  - name: a
    inputs: [0]
    outputs: [9]
    dataset_stage_id: 4
    loadgen: {component: loadgen.PoissonLoadScheduler, config: {rate: -1}, max_queries: 0, que_depth: 3}
    stages:
      - {name: one, id: 0, component: stages.Stage, outputs: [1, 7]}
      - {name: two, id: 1, component: Stage, polling_policy: MergPolicy}
      - {name: three, id: 1, component: stages.llm_mlx.Inference}
"""


@pytest.mark.covers("A9")
def test_every_mistake_of_a_file_is_said_at_once_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        read(tmp_path, MISTAKES)
    found = sorted((mistake.line, mistake.path, mistake.code) for mistake in refused.value.mistakes)
    assert found == [
        (2, "listeners[0]", "not_a_choice"),
        (6, "pipelines[0].outputs[0]", "unknown_name"),
        (7, "pipelines[0].dataset_stage_id", "unknown_name"),
        (8, "pipelines[0].loadgen.config.rate", "out_of_limits"),
        (8, "pipelines[0].loadgen.max_queries", "out_of_limits"),
        (8, "pipelines[0].loadgen.que_depth", "unknown_key"),
        (10, "pipelines[0].stages[0].outputs[1]", "unknown_name"),
        (11, "pipelines[0].stages[1].component", "wrong_form"),
        (11, "pipelines[0].stages[1].polling_policy", "not_a_choice"),
        (12, "pipelines[0].stages[2].component", "invalid"),
        (12, "pipelines[0].stages[2].id", "written_twice"),
    ]


@pytest.mark.covers("A6", "A9")
@pytest.mark.parametrize(
    ("component", "code"),
    [
        ("stages.mine.Inner", None),
        ("stages.mine.Renamed", None),
        ("stages.plain.Deep", None),
        ("stages.plain.Late", None),
        ("stages.broken.Any", None),
        ("torch.nn.Module", None),
        ("stages.plain.Plain", "invalid"),
        ("stages.mine.Bare", "invalid"),
        ("stages.mine.Iner", "unknown_name"),
        ("stages.llm_huggingface.Finetun", "unknown_name"),
        ("stages.not_there.Any", "unknown_name"),
        ("nobodys_module.Any", "unknown_name"),
        ("loadgen.schedulers.mine.Below", None),
        ("loadgen.schedulers.mine.Empty", "invalid"),
        ("loadgen.schedulers.mine.Mind", "unknown_name"),
        ("loadgen.PoissonScheduler", "unknown_name"),
    ],
)
def test_a_class_that_is_not_there_or_cannot_work_is_refused_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, component: str, code: str | None
) -> None:
    monkeypatch.chdir(own_classes(tmp_path))
    lines = ["  - {id: 0, component: stages.Stage, outputs: [1]}", "  - {id: 1, component: stages.Stage}"]
    text, at = GRAPH, "pipelines[0].stages[1].component"
    if component.startswith("loadgen"):
        text, at = (
            GRAPH.replace("loadgen: {}", f"loadgen: {{component: {component}}}"),
            "pipelines[0].loadgen.component",
        )
    else:
        lines[1] = lines[1].replace("stages.Stage", component)
    text += "\n".join(lines) + "\n"
    if code is None:
        read(tmp_path, text)
        return
    with pytest.raises(UserError) as refused:
        read(tmp_path, text)
    line = 6 if component.startswith("loadgen") else 9
    assert [(found.line, found.path, found.code) for found in refused.value.mistakes] == [(line, at, code)]


@pytest.mark.covers("A5", "A9")
def test_references_that_dangle_and_a_cycle_without_a_budget_are_refused_with_their_lines(tmp_path: Path) -> None:
    stages = (
        "  - {id: 0, component: stages.Stage, outputs: [2], config: {model: {first_stage_id: 7}, depends_on_id: 8}}\n"
        "  - {id: 1, component: stages.Stage}\n"
        "  - id: 2\n    component: stages.self_rag.BinaryRouter\n    outputs: [1, 0]\n    config:\n"
        "      yes_stage_id: 1\n      no_stage_id: 9\n      end_stage_id: 1\n"
    )
    begin = "pipelines[0].stages"
    with pytest.raises(UserError) as refused:
        read(tmp_path, GRAPH + stages)
    assert sorted((found.line, found.path, found.code) for found in refused.value.mistakes) == [
        (8, f"{begin}[0]", "invalid"),
        (8, f"{begin}[0].config.depends_on_id", "unknown_name"),
        (8, f"{begin}[0].config.model.first_stage_id", "unknown_name"),
        (15, f"{begin}[2].config.no_stage_id", "unknown_name"),
    ]
    whole = (
        stages.replace("7", "0").replace("8", "1").replace("no_stage_id: 9", "no_stage_id: 0\n      max_retries: 2")
    )
    assert read(tmp_path, GRAPH + whole).pipelines


GRAPH = "name: g\npipelines:\n- name: a\n  inputs: [0]\n  outputs: [1]\n  loadgen: {}\n  stages:\n"


@pytest.mark.covers("A5")
@pytest.mark.parametrize(
    ("stages", "line", "path"),
    [
        (
            "  - {id: 0, component: stages.Stage, outputs: [1]}\n"
            "  - {id: 1, component: stages.Stage}\n"
            "  - {id: 2, component: stages.Stage, outputs: [1]}\n",
            10,
            "pipelines[0].stages[2]",
        ),
        (
            "  - {id: 0, component: stages.Stage, outputs: [1, 2]}\n"
            "  - {id: 1, component: stages.Stage, polling_policy: SingleQueuePolicy}\n"
            "  - {id: 2, component: stages.Stage, outputs: [1]}\n",
            9,
            "pipelines[0].stages[1].polling_policy",
        ),
        (
            "  - {id: 0, component: stages.Stage, outputs: [1], polling_policy: FirstSubmittedPolicy}\n"
            "  - {id: 1, component: stages.Stage, outputs: [0], max_input_queue_depth: 2}\n",
            9,
            "pipelines[0].stages[1].max_input_queue_depth",
        ),
        (
            "  - {id: 0, component: stages.Stage, outputs: [0, 2], polling_policy: FirstSubmittedPolicy}\n"
            "  - {id: 1, component: stages.Stage}\n"
            "  - {id: 2, component: stages.Stage, outputs: [0]}\n",
            8,
            "pipelines[0].stages[0]",
        ),
    ],
)
def test_a_graph_that_cannot_work_is_refused(tmp_path: Path, stages: str, line: int, path: str) -> None:
    with pytest.raises(UserError) as refused:
        read(tmp_path, GRAPH + stages)
    assert (line, path) in [(mistake.line, mistake.path) for mistake in refused.value.mistakes]


def test_a_stage_with_several_inputs_and_no_policy_takes_the_first_submitted_with_a_note(
    tmp_path: Path,
) -> None:
    stages = (
        "  - {id: 0, component: stages.Stage, outputs: [1, 2]}\n"
        "  - {id: 1, component: stages.Stage}\n"
        "  - {id: 2, component: stages.Stage, outputs: [1]}\n"
    )
    file = read(tmp_path, GRAPH + stages)
    assert [stage.policy for stage in file.pipelines[0].stages] == [SINGLE, FIRST_SUBMITTED, SINGLE]
    assert len(file.notes) == 1


@pytest.mark.covers("A9")
def test_a_key_that_a_stage_of_ours_does_not_read_is_named_once_with_a_guess(tmp_path: Path) -> None:
    stages = (
        "  - {id: 0, component: stages.scripted.Loader, outputs: [1], config: {batchsize: 4, splits: {train: 2}}}\n"
        "  - {id: 1, component: stages.scripted.Loader, config: {batchsize: 4}}\n"
    )
    [note] = read(tmp_path, GRAPH + stages).notes
    assert "batch_size" in note
    assert "line 8" in note
    for path in sorted((Path(__file__).parents[2] / "pipeline_configs").glob("*.yml")):
        assert not read_pipelines(path).notes, path.name


@pytest.mark.covers("A9")
def test_a_folder_without_a_model_is_a_mistake_with_its_line(tmp_path: Path) -> None:
    for config in f"model: {{name: {tmp_path}}}", f"model_name: {tmp_path}":
        stages = (
            "  - {id: 0, component: stages.Stage, outputs: [1]}\n"
            f"  - {{id: 1, component: stages.llm_huggingface.Finetune, config: {{{config}}}}}\n"
        )
        with pytest.raises(UserError) as refused:
            read(tmp_path, GRAPH + stages)
        [mistake] = refused.value.mistakes
        assert (mistake.line, mistake.path.rpartition(".config")[0]) == (9, "pipelines[0].stages[1]")
