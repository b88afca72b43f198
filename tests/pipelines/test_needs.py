"""What pipelines need: the libraries that decide the environment, and what a machine does not have."""

from pathlib import Path

import pytest
import yaml

from seamark.planning.study import Study
from seamark_pipelines.config.libraries import library_of
from seamark_pipelines.drivers.needs import lacking_of, reachable
from seamark_pipelines.model.graph import LoadGen, PipelineModel, StageModel

CONFIGURATIONS = Path(__file__).parents[2] / "pipeline_configs"


def pipeline(component: str, **config: object) -> PipelineModel:
    stage = StageModel(id=0, name="s", slug="s", component=component, config=config)
    return PipelineModel(
        name="p", slug="p", inputs=(0,), outputs=(0,), dataset_stage_id=0, loadgen=LoadGen(), stages=(stage,)
    )


@pytest.mark.covers("A10")
def test_a_stage_that_imports_a_library_of_models_has_their_environment(tmp_path: Path) -> None:
    stages = tmp_path / "stages" / "deep"
    stages.mkdir(parents=True)
    (stages / "__init__.py").write_text("from .inner import Inner\nfrom .plain import Plain\n")
    (stages / "inner.py").write_text("from . import helper\nclass Inner: ...\n")
    (stages / "plain.py").write_text("import json\nclass Plain: ...\n")
    (stages / "helper.py").write_text("def late():\n    import torch.nn\n")
    (tmp_path / "stages" / "broken.py").write_text("import torch\ndef (:\n")
    found = {
        component: library_of(pipeline(component), tmp_path)
        for component in (
            "stages.scripted.Scripted",
            "stages.self_rag.BinaryRouter",
            "stages.self_rag.IndexRouter",
            "stages.TerminalCapture",
            "stages.deep.Plain",
            "stages.deep.Inner",
            "stages.deep.inner.Inner",
            "stages.broken.Any",
            "stages.not_there.Any",
        )
    }
    assert found == dict.fromkeys(found, None) | dict.fromkeys(
        ("stages.deep.Inner", "stages.deep.inner.Inner"), "torch"
    )
    for family in ("llm_huggingface", "llm_torchtune", "torchvision_classification", "self_rag"):
        assert library_of(pipeline(f"stages.{family}.Mine"), tmp_path) is not None
    assert library_of(pipeline("stages.Stage", optimizer={"component": "torch.optim.AdamW"}), tmp_path) == "torch"
    assert library_of(pipeline("stages.Stage", data_model="utils.schemas.rag.Score"), tmp_path) == "pydantic"
    assert library_of(pipeline("stages.Stage", note="torch is a word"), tmp_path) is None


@pytest.mark.covers("A10")
def test_a_workload_is_measured_by_the_recipe_with_the_libraries_that_its_stages_need(tmp_path: Path) -> None:
    def service(graph: str, **more: object) -> str:
        workload = {"service": "pipeline", "graph": str(CONFIGURATIONS / graph), **more}
        (tmp_path / "try.yaml").write_text(yaml.safe_dump({"scenario": "try", "workload": workload}))
        trial = Study.at(tmp_path, scenario="try.yaml").plan.trials[0]
        assert trial.group == "pipeline"
        return trial.service

    assert service("scripted.yml", pipeline="Training") == "pipeline"
    assert service("finetune_huggingface.yml") == "pipeline_models"
    assert service("torchvision_mixed.yml", pipeline="Inference") == "pipeline_models"


@pytest.mark.covers("A10")
def test_devices_models_and_files_that_are_not_here_are_a_line_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens
    (tmp_path / "model").mkdir()
    family = "stages.llm_huggingface.Inference"

    def lacking(component: str = family, **config: object) -> list[str]:
        return list(lacking_of(pipeline(component, **config)))

    assert len(lacking(device="mps")) == 1
    assert len(lacking(model={"name": "/nowhere/at/all"})) == 1
    assert "config.json" in lacking(model=str(tmp_path / "model"))[0]
    (tmp_path / "model" / "config.json").write_text("{}")
    assert lacking(model_name=str(tmp_path / "model"), device="cpu") == []
    assert lacking(model={"name": "seeded/llama"}, dataset={"name": "seeded/instructions"}) == []
    assert len(lacking(model={"name": "seeded/lama"})) == 1
    assert len(lacking(model={"name": "org/name"}, dataset={"name": "org/data"})) == 2
    assert lacking("stages.mine.Mine", model={"name": "org/name"}) == []
    assert len(lacking("stages.Stage", inner={"db_path": "not/here.sqlite", "note": "not/here"})) == 1
    assert lacking(model={"name": "org/name"}, depends_on_id=1) == []
    (tmp_path / "hub" / "models--org--name").mkdir(parents=True)
    reachable.cache_clear()
    assert lacking(model={"name": "org/name"}) == []


def test_every_shipped_configuration_needs_nothing_that_a_laptop_lacks() -> None:
    from seamark_pipelines.config.read import read_pipelines

    for path in sorted(CONFIGURATIONS.glob("*.yml")):
        file = read_pipelines(path)
        assert not file.unread, path.name
        for model in file.pipelines:
            assert list(lacking_of(model)) == [], (path.name, model.name)
