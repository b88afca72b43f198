"""A server that does not fit its GPUs is refused before a job; what is not known is not refused."""

import json
import re
import subprocess
from pathlib import Path

import in_process
import pytest
from click.testing import CliRunner
from model_folders import LLAMA_8B, LLAMA_8B_PARAMETERS, LLAMA_70B, LLAMA_70B_PARAMETERS, write_model

from seamark.cli.main import cli
from seamark.errors import UserError
from seamark.model.results.deployment_record import DeploymentRecord
from seamark.model.server_identity import ServerRecord
from seamark.planning.study import Study
from seamark.storage.documents import write
from seamark_simulate.planning.gpu_memory_check import require_gpu_memory

SCENARIO = """\
scenario: sized
site: {site}
{top}
repetitions: 1
resources: {{gpus: {gpus}, cpus_per_task: 8, mem_gb: 64{more}}}
workload:
  service: {service}
  model: {model}
  max_model_len: {longest}
"""
RECIPE = """\
name: chatter
component: inference
summary: A server of language models with names of its own
version: "1"
licence: Apache-2.0
driver: seamark.drivers.openai:OpenAi
workers: wire
server:
  command: [chatter, "{settings[weights]}", "--share={settings[share]}"]
gpu_memory:
  {model: weights, max_model_len: window, gpu_memory_utilization: share, tensor_parallel: tp, data_parallel: dp}
settings:
  weights: {type: str, role: deployment, default: small, help: Folder.}
  window: {type: int, role: deployment, default: 4096, help: Tokens.}
  share: {type: float, role: deployment, default: 0.9, help: Share.}
  tp: {type: int, role: deployment, default: 1, help: GPUs of a layer.}
  dp: {type: int, role: deployment, default: 1, help: Replicas.}
"""


def scenario_in(
    root: Path,
    model: Path | str,
    *,
    gpus: str = "1",
    longest: str = "16000",
    site: str = "meluxina",
    top: str = "partition: gpu\naccount: p200000",
    service: str = "vllm",
    more: str = "",
    add: str = "",
) -> Path:
    """Write a scenario with one server; return its file."""
    path = root / "config" / "scenarios" / "sized.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = SCENARIO.format(site=site, top=top, gpus=gpus, longest=longest, service=service, model=model, more=more)
    path.write_text(text + add, encoding="utf-8")
    return path


def check(root: Path, *models: object, **keys: str):
    """Return the check of a scenario."""
    scenario_in(root, *models, **keys)
    return require_gpu_memory(Study.at(root, scenario="config/scenarios/sized.yaml"))


def refused(root: Path, *models: object, **keys: str) -> tuple[str, ...]:
    with pytest.raises(UserError) as caught:
        check(root, *models, **keys)
    assert caught.value.exit_code == 2
    assert all(line.isprintable() for line in caught.value.lines)
    return caught.value.lines


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def llama_8b(root: Path) -> Path:
    return write_model(root / "models" / "8b", LLAMA_8B, LLAMA_8B_PARAMETERS)


@pytest.fixture
def llama_70b(root: Path) -> Path:
    return write_model(root / "models" / "70b", LLAMA_70B, LLAMA_70B_PARAMETERS)


def bench(root: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return in_process.bench(*words, cwd=root, WORK=str(root))


@pytest.mark.slow
@pytest.mark.covers("D8", "E-VAL", "E-INT01")
@pytest.mark.parametrize("words", [("plan",), ("submit",), ("export", "slurm")], ids=" ".join)
def test_70b_on_one_gpu_of_40_gb_is_one_line_with_class_and_remedy_and_nothing_is_written(root, llama_70b, words):
    path = scenario_in(root, llama_70b)
    done = bench(root, *words, "-c", str(path.relative_to(root)))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"config/scenarios/sized.yaml:9: workload.model: weights_do_not_fit: vllm {llama_70b}: weights 131.42 +"
        " activation 4.80 + non-torch 0.15 = 136.37 GiB on the GPU, of 0.9 x 40 GB = 36.00 GiB. Use 'service:"
        " vllm_ray', 'pipeline_parallel: 2', 'tensor_parallel: 4', 'resources: {nodes: 2, gpus: 8}';"
        " 'capacity_check: note' measures anyway.\n"
    )
    assert not (root / "results").exists()
    assert not (root / "slurm").exists()


@pytest.mark.slow
@pytest.mark.covers("D8")
def test_a_plan_shows_the_room_on_a_gpu_and_idle_gpus(root, llama_8b):
    path = scenario_in(root, llama_8b, gpus="2")
    shown = bench(root, "plan", "-c", str(path))
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.partition("\nGPU memory\n")[2] == (
        f"  vllm {llama_8b} on 1 GPU: 0.9 x 40 GB = 36.00 GiB of each, less weights 14.96 + activation 4.80 +"
        " non-torch 0.15: room for 131,824 tokens, 8 requests of 16,000 tokens at a time\n"
        f"  Note: vllm {llama_8b}: gpus_idle: 1 of 2 GPUs are not used.\n"
    )
    document = json.loads(bench(root, "plan", "-c", str(path), "--json", "--no-write").stdout)
    [server] = document["gpu_memory"]["servers"]
    assert (server["memory"]["requests"], server["memory"]["kv_token_bytes"]) == (8, 131_072)


@pytest.mark.covers("D8")
@pytest.mark.parametrize(
    ("keys", "starts", "says"),
    [
        (
            {"gpus": "3", "add": "  tensor_parallel: 3\n"},
            "config/scenarios/sized.yaml:11: workload.tensor_parallel: heads_not_divided: vllm ",
            "Use 'tensor_parallel: 2';",
        ),
        (
            {"longest": "131073", "gpus": "2", "add": "  tensor_parallel: 2\n"},
            "config/scenarios/sized.yaml:10: workload.max_model_len: too_long_for_model: vllm ",
            "131073 tokens are more than the 131072 of the model. Use 'max_model_len: 131072';",
        ),
        (
            {"longest": "131072", "add": "  gpu_memory_utilization: 0.8\n"},
            "config/scenarios/sized.yaml:10: workload.max_model_len: no_request_fits: vllm ",
            "Use 'max_model_len: 99056' or 'tensor_parallel: 2', 'resources: {gpus: 2}';",
        ),
    ],
)
def test_each_class_names_its_line_and_what_would_do(root, llama_8b, keys, starts, says):
    [line] = refused(root, llama_8b, **keys)
    assert line.startswith(starts)
    assert says in line


@pytest.mark.covers("E-FR26", "E-VAL")
@pytest.mark.parametrize("model", ["here", "unknown/model"])
@pytest.mark.parametrize("where", [{}, {"site": "local", "top": ""}], ids=["meluxina", "a site of unknown GPUs"])
@pytest.mark.parametrize("check_of", ["stop", "note", "off"])
def test_more_tensor_parallel_gpus_than_gpus_are_refused_always(root, llama_8b, model, where, check_of):
    keys = {"top": "partition: gpu\naccount: p200000"} | where
    keys["top"] += f"\ncapacity_check: {check_of}"
    model = llama_8b if model == "here" else model
    path = scenario_in(root, model, add="  tensor_parallel: 4\n", **keys)
    with pytest.raises(UserError) as caught:
        Study.at(root, scenario=path).plan  # noqa: B018
    [line] = caught.value.lines
    assert line.startswith("config/scenarios/sized.yaml:")
    assert "resources.gpus: " in line
    assert "{gpus: 4}" in line
    check(root, "unknown/model", gpus="4", add="  tensor_parallel: 4\n", **keys)
    scenario_in(root, "unknown/model", gpus="0", add="  tensor_parallel: 4\n", site="local", top="")
    assert Study.at(root, scenario="config/scenarios/sized.yaml").plan.trials, "cores share a layer without GPUs"


@pytest.mark.covers("D8")
def test_every_level_is_checked_and_each_refusal_is_said_once(root, llama_8b, llama_70b):
    lines = refused(root, f"[{llama_8b}, {llama_70b}]", longest="[8000, 16000, 200000]", gpus="[1, 2]")
    kinds = [(line.split(": ")[2], str(llama_70b) in line) for line in lines]
    assert kinds.count(("too_long_for_model", False)) == 1
    assert kinds.count(("too_long_for_model", True)) == 1
    assert kinds.count(("weights_do_not_fit", True)) == 1
    assert len(kinds) == len(set(lines)) == 3


@pytest.mark.covers("D8")
def test_a_refusal_can_be_a_note_and_the_check_can_be_off(root, llama_70b):
    noted = check(root, llama_70b, top="partition: gpu\naccount: p200000\ncapacity_check: note")
    assert "weights_do_not_fit" in noted.notes[0]
    assert noted.servers[0].memory.requests == 0
    for word in ("off", "'off'"):
        off = check(root, llama_70b, top=f"partition: gpu\naccount: p200000\ncapacity_check: {word}")
        assert (off.servers, off.notes) == ((), ())


def test_damaged_files_of_a_model_stop_a_plan_with_a_line_and_are_a_note_where_that_is_asked_for(root, llama_8b):
    (llama_8b / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{")
    [line] = refused(root, llama_8b)
    assert line.startswith("models/8b/model.safetensors: is no safetensors file, or cut off")
    (llama_8b / "config.json").write_text("{")
    [line] = refused(root, llama_8b)
    assert line.startswith("models/8b/config.json: not valid JSON")
    noted = check(root, llama_8b, top="partition: gpu\naccount: p200000\ncapacity_check: note")
    assert noted.notes == (line,)


@pytest.mark.parametrize(
    "keys",
    [
        {"gpus": "0"},
        {"top": "partition: cpu\naccount: p200000", "gpus": "0"},
        {"site": "local", "top": ""},
    ],
    ids=["no GPU", "no GPU on its partition", "GPUs of unknown memory, and a server without any"],
)
def test_without_a_gpu_of_known_memory_nothing_is_said(root, llama_70b, keys):
    found = check(root, llama_70b, **keys)
    assert (found.servers, found.notes) == ((), ())


@pytest.mark.parametrize("model", ["mistral-7b-instruct", "/no/such/model"])
def test_a_model_that_is_not_here_is_a_note(root, model):
    found = check(root, model)
    assert found.servers == ()
    assert found.notes == (f"vllm: the memory of its GPUs is not checked: '{model}' is no folder of a model here.",)


def test_a_model_inside_a_container_is_found_through_the_binds(root, llama_70b):
    [line] = refused(root, "/data/70b", add=f"binds: ['{llama_70b.parent}:/data']\n")
    assert "weights_do_not_fit: vllm /data/70b: " in line


def test_a_server_that_has_measured_a_trial_fits(root, llama_70b):
    scenario_in(root, llama_70b)
    study = Study.at(root, scenario="config/scenarios/sized.yaml")
    with pytest.raises(UserError):
        require_gpu_memory(study)
    record = study.folder("sized").trial(study.plan.trials[0].id).record
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    assert require_gpu_memory(study).notes == ()


def ended(study: Study, kv_tokens: int | None, **place: str) -> None:
    """Leave the record of a start of the study's first server that counted so many tokens."""
    where = {"digest": "0", "runtime": "apptainer", "site": "meluxina", "partition": "gpu"} | place
    record = DeploymentRecord(status="ok", kv_tokens=kv_tokens, server_identity=ServerRecord(**where))
    path = study.folder("sized").deployment(study.plan.deployments[0].id).record
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, record)


@pytest.mark.covers("D8")
def test_what_a_start_counted_takes_the_place_of_the_constants_for_servers_of_its_model(root, llama_8b):
    [line] = refused(root, llama_8b, longest="130000", add="  gpu_memory_utilization: [0.8, 0.9]\n")
    assert "'max_model_len: 99056'" in line
    study = Study.at(root, scenario="config/scenarios/sized.yaml")
    first = study.plan.deployments[0].settings["gpu_memory_utilization"]
    # 0.8 and 0.9 of 40 GB less 14.957 of weights leave 17.043 and 21.043 GiB. The start kept 16 or 20 GiB for tokens
    # of 131,072 bytes, so it took 1.043 GiB beside them, and every other server of the model will as well.
    ended(study, {0.8: 131_072, 0.9: 163_840}[first])
    found = require_gpu_memory(study)
    assert found.notes == ()
    assert {each.gpu_memory_utilization: each.memory.kv_tokens for each in found.servers} == {
        0.8: 131_072,
        0.9: 163_840,
    }
    assert {each.memory.requests for each in found.servers} == {1}
    assert all("less weights 14.96 + measured 1.04: room for" in each.text for each in found.servers)


@pytest.mark.parametrize("place", [{"runtime": "venv"}, {"site": "local"}, {"partition": "gpu80"}])
def test_what_a_start_elsewhere_counted_says_nothing_of_these_gpus(root, llama_8b, place):
    scenario_in(root, llama_8b)
    study = Study.at(root, scenario="config/scenarios/sized.yaml")
    ended(study, 1_000_000, **place)
    assert require_gpu_memory(study).servers[0].memory.kv_tokens == 131_824
    ended(study, None)
    assert require_gpu_memory(study).servers[0].memory.kv_tokens == 131_824


def test_layouts_of_a_service_over_nodes_are_checked_with_their_stages(root, llama_70b):
    layout = "  tensor_parallel: 4\n  pipeline_parallel: 2\n"
    found = check(root, llama_70b, gpus="8", more=", nodes: 2", service="vllm_ray", add=layout)
    assert found.servers[0].memory.requests == 23
    [line] = refused(root, llama_70b, gpus="2", more=", nodes: 2", service="vllm_ray")
    assert "Use 'pipeline_parallel: 2'" not in line
    assert "Use 'tensor_parallel: 4', 'resources: {nodes: 2, gpus: 8}'" in line


def own_files(root: Path, site: str, recipe: str = RECIPE) -> None:
    for kind, name, text in (("services", "chatter", recipe), ("sites", "desk", site)):
        folder = root / "config" / kind
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


DESK = "name: desk\nsummary: a machine with GPUs\ngpu_memory_gb: 80\n"


def own_scenario(root: Path, model: Path, add: str) -> Path:
    text = "scenario: sized\nsite: desk\nrepetitions: 1\nresources: {gpus: 1}\nworkload:\n  service: chatter\n"
    path = root / "config" / "scenarios" / "sized.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}  weights: {model}\n{add}", encoding="utf-8")
    return path


@pytest.mark.covers("D8")
def test_a_recipe_of_a_study_names_its_own_settings_and_a_site_the_memory_of_its_gpus(root, llama_70b, llama_8b):
    own_files(root, DESK)
    own_scenario(root, llama_70b, "  window: 16000\n")
    with pytest.raises(UserError) as caught:
        require_gpu_memory(Study.at(root, scenario="config/scenarios/sized.yaml"))
    [line] = caught.value.lines
    assert line.startswith("config/scenarios/sized.yaml:7: workload.weights: weights_do_not_fit: chatter ")
    assert "of 0.9 x 80 GB = 72.00 GiB. Use 'tp: 4', 'resources: {gpus: 4}';" in line
    own_scenario(root, llama_8b, "  window: 16000\n  dp: 2\n")
    with pytest.raises(UserError) as caught:
        require_gpu_memory(Study.at(root, scenario="config/scenarios/sized.yaml"))
    assert "dp 2" in str(caught.value)
    assert "{gpus: 2}" in str(caught.value)


def test_a_start_whose_command_takes_no_share_of_a_gpu_is_not_checked(root, llama_70b):
    own_files(root, DESK, RECIPE.replace(', "--share={settings[share]}"', ""))
    own_scenario(root, llama_70b, "")
    assert require_gpu_memory(Study.at(root, scenario="config/scenarios/sized.yaml")).servers == ()


PAGE = (Path(__file__).parents[2] / "docs" / "how-to-size-gpu-memory.md").read_text(encoding="utf-8")
CALLS = re.findall(r"^\$ bench (.+)\n((?:(?!\$ |```).*\n)+)", PAGE, re.MULTILINE)


@pytest.mark.slow
def test_the_page_shows_what_commands_print(root):
    write_model(root / "models" / "llama-3.1-8b", LLAMA_8B, LLAMA_8B_PARAMETERS)
    write_model(root / "models" / "llama-3.1-70b", LLAMA_70B, LLAMA_70B_PARAMETERS)
    [scenario] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    path = root / "config" / "scenarios" / "llama.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(scenario, encoding="utf-8")
    assert len(CALLS) == 4
    for words, shown in CALLS:
        done = bench(root, *words.split())
        assert done.stdout + done.stderr == shown
        assert done.returncode == (2 if done.stderr else 0)
    path.write_text(scenario.replace("70b", "8b").replace("gpus: 1", "gpus: 2"), encoding="utf-8")
    shown = bench(root, "plan", "-c", "config/scenarios/llama.yaml").stdout
    assert shown.partition("\n\nGPU memory")[2] in PAGE.partition("```text\nGPU memory")[2]
    assert "8 requests of 16,000 tokens at a time" in shown


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--gpu", "a100-48"), "--gpu a100-48: no known kind of GPU. Known: v100-32, a100-40,"),
        (("--gpu", "-5"), "--gpu -5: no known kind of GPU."),
        (("--gpu", "nan"), "--gpu nan: no known kind of GPU."),
        (("--gpu", "40", "--tensor-parallel", "0"), "--tensor-parallel"),
        (("--gpu", "40", "--gpu-memory-utilization", "0"), "--gpu-memory-utilization"),
        (("--gpu", "40", "--dtype", "int4"), "int4"),
        (("--gpu", "40", "--tensor-parallel", "3"), "heads_not_divided: 3 tensor-parallel GPUs cannot share 32"),
        (("--gpu", "40", "--max-model-len", "200000"), "too_long_for_model: 200000 tokens are more than the 131072"),
    ],
)
def test_a_mistake_in_the_command_is_an_error_that_names_it(llama_8b, words, says):
    done = CliRunner().invoke(cli, ["memory", "--model", str(llama_8b), *words])
    text = done.output + str(done.exception)
    assert done.exit_code == 2 or isinstance(done.exception, UserError)
    assert says in text


def test_the_command_prints_json(llama_8b):
    done = CliRunner().invoke(cli, ["memory", "--model", str(llama_8b), "--gpu", "80", "--json"])
    document = json.loads(done.output)
    assert document["architecture"]["layers"] == 32
    assert document["memory"]["max_model_len"] == 131_072
    assert document["memory"]["requests"] == 3
