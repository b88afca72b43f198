"""A whole run in which another tool sends loads: its environment, its kept files, and a trial like those of ours."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from study_folder import StudyFolder

from seamark.planning.study import SHIPPED
from seamark.services.runtimes.environments import COMPLETE, environment_folder

RATE_RPS, TTFT_MS = 20.0, 20.0
TOOL = """\
#!{python}
# stands for guidellm: sends each prompt of its file when it is due, one after another, and ends with an error
import json, sys, time, urllib.request
given = dict(zip(sys.argv[2::2], sys.argv[3::2]))
backend, profile, data, output = (json.loads(given["--" + name]) for name in ("backend", "profile", "data", "output"))
time.sleep(1.0)
begin, rows = time.time(), []
for number, line in enumerate(open(data["path"])):
    prompt = json.loads(line)
    due = begin + number / profile["rate"][0]
    time.sleep(max(0.0, due - time.time()))
    body = {{"model": backend["model"], "prompt": prompt["prompt"], "max_tokens": prompt["output_tokens_count"]}}
    url, head = backend["target"] + backend["request_format"], {{"Content-Type": "application/json"}}
    sent = time.time()
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), head)) as reply:
        tokens = json.load(reply)["usage"]["completion_tokens"]
    times = {{"targeted_start": due, "request_start": sent, "resolve_start": sent}}
    times |= {{"first_token_iteration": time.time(), "request_end": time.time(), "resolve_end": time.time()}}
    rows.append({{"info": {{"timings": times, "error": None}}, "output_tokens": tokens}})
groups = {{"successful": rows, "errored": [], "incomplete": []}}
json.dump({{"benchmarks": [{{"requests": groups}}]}}, open(output["path"], "w"))
sys.exit(1)
"""


def with_tool(study: StudyFolder) -> None:
    """Put TOOL in the place of guidellm, as if its environment had been made."""
    root = study.root.parent / "environments"
    folder = environment_folder("guidellm", SHIPPED / "envs", root)
    for path in (folder / "bin/python", folder / "bin/guidellm", folder / "lib/python3.11/site-packages/guidellm"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TOOL.format(python=sys.executable))
        path.chmod(0o755)
    (folder / COMPLETE).touch()
    site = study.root / "config/sites/local.yaml"
    document = yaml.safe_load(site.read_text())
    document["paths"] = document.get("paths", {}) | {"environments": str(root)}
    site.write_text(yaml.safe_dump(document, sort_keys=False))


WORKLOAD: dict[str, Any] = {
    "component": "inference",
    "service": "known",
    "prompt_form": "text",
    "prompt_len": 8,
    "gen_tokens": 4,
    "pattern": "constant",
    "rate_rps": RATE_RPS,
    "ttft_ms": TTFT_MS,
    "concurrency": 8,
    "duration_s": 1.5,
    "warmup_s": 0.5,
}


@pytest.mark.covers("D8", "D9")
@pytest.mark.e2e
@pytest.mark.services
def test_a_load_of_another_tool_is_measured_as_one_of_ours(tmp_path: Path) -> None:
    study = StudyFolder.new(tmp_path / "study")
    with_tool(study)
    study.write(workload=WORKLOAD | {"harness": ["seamark", "guidellm"]}, repetitions=1)
    study.measure(code=0)
    metrics: dict[str, Any] = {}
    for trial in study.trials():
        document = json.loads((trial / "metrics.json").read_text())
        metrics[document["config"]["harness"]] = document
        assert (trial / "files/native.json").exists() == (document["config"]["harness"] == "guidellm")
    ours, theirs = metrics["seamark"], metrics["guidellm"]
    assert (ours["status"], theirs["status"]) == ("ok", "ok"), "its exit code 1 is no failure"
    assert theirs["offered_rps"] == pytest.approx(ours["offered_rps"], rel=0.01) == pytest.approx(RATE_RPS, rel=0.01)
    assert theirs["counts"]["ok"] == ours["counts"]["ok"]
    assert theirs["service_time_ms"]["p50"] >= TTFT_MS
    assert not study.processes()
