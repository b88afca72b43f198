"""Wrong options and files of measured runs: one line each, exit code 2, and nothing is written or started."""

from pathlib import Path

import pytest
import yaml
from in_process import said_by

ROOT = Path(__file__).resolve().parents[2]
CLUSTERS = ROOT / "config" / "clusters"
FILES = ("--config", f"{CLUSTERS}/system_config.yaml", "--requests", f"{CLUSTERS}/workflow_requests.yaml")
MACHINE = f"{CLUSTERS}/machine_two_hosts.yaml"
SIMULATE = ("simulate", "--gpus", "2", *FILES)
MEASURE = (*SIMULATE, "--execution", "measure")
BASELINE = ("baseline", "--gpus", "2", *FILES)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(*words, written=()):
    """Run bench; return the only line that it prints."""
    said = said_by(list(words), code=2)
    assert said.count("\n") == 1, said
    assert sorted(path.name for path in Path().iterdir()) == sorted(written)
    return said


@pytest.mark.covers("C1", "C2")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((*SIMULATE, "--servers", "s.yaml"), "--servers: is for measured runs. Add --execution measure"),
        ((*SIMULATE, "--model-server", "http://localhost:8000"), "--model-server: is for measured runs"),
        ((*SIMULATE, "--limit", "3s"), "--limit: is for measured runs"),
        ((*BASELINE, "--call-limit", "3s"), "--call-limit: is for measured runs. Add --simulate true"),
        ((*MEASURE, "--servers", "s.yaml", "--model-server", "http://localhost:1"), "--servers and --model-server"),
        ((*MEASURE, "--limit", "soon"), "--limit soon: not a duration. Give one as 45s"),
        ((*MEASURE, "--call-limit", "0"), "--call-limit 0: not a duration"),
        ((*MEASURE, "--policy", "baseline,heft"), "--policy baseline,heft: is for estimates"),
        ((*MEASURE, "--draw"), "--draw: is for estimates. Measure one policy at a time"),
        (("simulate", "--machine", MACHINE, *FILES, "--execution", "measure"), "--machine: is for estimates."),
        ((*MEASURE, "--model-server", "localhost:8000"), "--model-server localhost:8000: is no address of a server"),
        ((*MEASURE, "--model-server", "https://localhost"), "--model-server https://localhost: is no address"),
        ((*MEASURE, "--model-server", "http://"), "--model-server http://: is no address"),
        ((*MEASURE, "--model-server", "http://localhost:99999"), "--model-server http://localhost:99999: is no add"),
        ((*MEASURE, "--servers", "s.yaml"), "s.yaml: no such file"),
        ((*BASELINE, "--simulate", "true", "--model-server", "here"), "--model-server here: is no address"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(words, expected):
    assert expected in refused(*words)


SERVERS = {"llm7b": {"service": "known"}, "stable_diffusion": {"service": "known"}}


@pytest.mark.covers("C2")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"llm7b": {"service": "knwon"}}, "s.yaml:2: models.llm7b: knwon: no such service."),
        ({"llm7b": {"service": "null"}}, "s.yaml:2: models.llm7b: the service 'null' has no OpenAI API"),
        (
            {"llm7b": {"service": "faiss"}},
            "models.llm7b: faiss: it runs inside the load, so there is no server to start",
        ),
        (
            {"llm7b": {"service": "known", "settings": {"ttft": 3}}},
            "s.yaml:2: models.llm7b: known: ttft: unknown key. Did you mean 'ttft_ms'?",
        ),
        ({"llm7b": {"service": "known", "settings": {"ttft_ms": -1}}}, "s.yaml:2: models.llm7b: known: ttft_ms"),
        ({"site": "nowhere"}, "site 'nowhere': no such file in config/sites"),
    ],
)
def test_a_wrong_server_of_a_model_is_refused_in_one_line_before_any_starts(changes, expected):
    site = changes.get("site", "local")
    models = SERVERS | {name: value for name, value in changes.items() if name != "site"}
    text = yaml.safe_dump({"models": models, "site": site}, default_flow_style=None, sort_keys=False)
    Path("s.yaml").write_text(text, encoding="utf-8")
    assert expected in refused(*MEASURE, "--servers", "s.yaml", written=["s.yaml"])


@pytest.mark.covers("C2")
def test_tasks_that_are_calls_of_no_model_cannot_be_measured():
    fields = ["1", "0", "0", "10", "1", "-1", "-1", "1", "10", *["-1"] * 9]
    Path("cluster.swf").write_text(" ".join(fields) + "\n", encoding="utf-8")
    words = ("simulate", "--gpus", "2", "--requests", "cluster.swf", "--execution", "measure")
    assert "its tasks are calls of no model" in refused(*words, written=["cluster.swf"])


@pytest.mark.covers("C2")
def test_mistakes_of_the_inputs_come_before_any_call_of_a_server():
    said = refused("simulate", "--gpus", "1", *FILES[:2], "--requests", "none.yaml", "--execution", "measure")
    assert "none.yaml: no such file" in said
