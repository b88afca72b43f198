"""What ships as recipes: each says why it is here, what was seen running in Apptainer, and has an image to run in."""

import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from shipped import SERVICES

from seamark.model.load_profile import LoadProfile
from seamark.model.service import Service
from seamark.patterns.table import load_settings_of
from seamark.planning.study import Study
from seamark.services.images.study_images import StudyImages

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
reference = import_module("reference")

every_recipe = pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)


def programs(service: Service) -> Iterator[tuple[str, ...]]:
    """Give every command line of a recipe that starts with a shell and the text of its program."""
    server, container = service.server, service.container
    if server is not None:
        lines = [*server.setup, server.command, *(part.command for part in server.parts)]
        yield from (
            line for line in [*lines, *([container.command] if container else [])] if line and line[0] == "sh"
        )


def section(service: Service) -> str:
    """Return what the page on services has under a recipe's heading."""
    page = reference.services_page(SERVICES)
    return re.split(r"\n## ", page.split(f"\n## {service.name}\n", 1)[1])[0]


@pytest.mark.covers("E-AC03", "E-RISK")
@every_recipe
def test_a_recipe_says_why_it_is_here_what_it_stands_for_and_its_licence(service: Service) -> None:
    assert len(service.why) > 100
    said = section(service)
    for text in (service.why, service.licence, service.version):
        assert " ".join(text.split()) in said


@pytest.mark.covers("E-AC03")
@every_recipe
def test_a_recipe_was_seen_in_apptainer_by_a_test_or_says_that_it_was_not(service: Service) -> None:
    assert " ".join(service.in_apptainer.split()) in section(service)
    tests = re.findall(r"`(tests/[\w/.]+)`", service.in_apptainer)
    assert tests or re.search(r"\bnot run here\b", service.in_apptainer, re.IGNORECASE)
    for path in tests:
        told = (ROOT / path).read_text()
        assert f'"{service.name}"' in told or service.server is None, f"{path} runs no {service.name}"
    for definition in re.findall(r"`(containers/[\w.]+)`", service.in_apptainer):
        assert (ROOT / definition).is_file()


@pytest.mark.covers("B12")
@pytest.mark.parametrize("name", ["attention", "vllm_questions"])
def test_a_question_has_hours_unless_a_scenario_says_otherwise(name: str) -> None:
    defaults = {each.name: each.default for each in load_settings_of(SERVICES[name])}
    load = LoadProfile.of(defaults)
    assert load.finite
    assert 3600 <= load.timeout_s < load.length_s
    assert f"{load.timeout_s:g} s" in section(SERVICES[name])
    assert LoadProfile.of({**defaults, "timeout_s": 5}).timeout_s == 5


NEEDED: dict[str, dict[str, object]] = {
    "fitted": {"model_file": str(ROOT / "config/models/example.yaml"), "model": "mm1", "rate_rps": 9},
    "cluster": {"system_file": str(ROOT / "config/clusters/system_config.yaml"), "generated_requests": 5},
    "command": {"command": {"argv": ["true"]}},
    "pipeline": {"graph": str(ROOT / "pipeline_configs/scripted.yml"), "pipeline": "Training"},
    "pipeline_models": {"graph": str(ROOT / "pipeline_configs/self_rag.yml")},
    "vllm_questions": {"task": "mock_benchmark"},
    "attention": {"model": "a-model", "task": "mock_benchmark"},
    "attention_cuda": {"model": "a-model", "task": "mock_benchmark"},
}
"""Settings that a workload of a service must have."""


@pytest.mark.covers("E-AC03", "E-FR06")
@every_recipe
def test_a_recipe_has_an_image_to_run_in(service: Service, tmp_path: Path) -> None:
    (tmp_path / "config/sites").mkdir(parents=True)
    site = {"name": "boxes", "summary": "images", "runtime": "apptainer", "images": {"client": True}}
    (tmp_path / "config/sites/boxes.yaml").write_text(yaml.safe_dump(site))
    server = service.server
    resources = {"nodes": server.fewest_nodes, "gpus": server.fewest_gpus} if server else {}
    needed = NEEDED.get(service.name, {})
    scenario = {"scenario": "try", "resources": resources, "workload": {"service": service.name, **needed}}
    (tmp_path / "try.yaml").write_text(yaml.safe_dump(scenario))
    images = StudyImages(study=Study.at(tmp_path, scenario="try.yaml", site="boxes"))
    deployment = images.study.plan.deployments[0]
    found = [images.of_client(deployment), *([images.of_server(deployment)] if service.server else [])]
    for image in found:
        assert image is not None
        assert image.path.suffix == ".sif"
        assert image.origin == "registry" or (ROOT / image.source).is_file()
        assert image.licence


@every_recipe
def test_no_path_and_no_setting_is_read_as_program_by_the_shells_of_a_recipe(
    service: Service, tmp_path: Path
) -> None:
    data, fakes = tmp_path / "x'; touch P; echo '", tmp_path / "fakes"
    fakes.mkdir()
    own = data / "server/bin/milvus"
    own.parent.mkdir(parents=True)
    names = ("ray", "vllm", "milvus", "minio", "kafka-storage.sh", "kafka-server-start.sh", "rclone", "weed")
    (fakes / "bin").mkdir()
    for program in (own, *(fakes / name for name in names), fakes / "bin/vllm-router"):
        program.write_text('#!/bin/sh\n[ "$1" != random-uuid ] || echo uuid\n')
        program.chmod(0o755)
    injected: defaultdict[str, str] = defaultdict(lambda: "$(touch P)`touch P`'")
    values = {"data": data, "host": "127.0.0.1; touch P", "node": "n", "settings": injected, "switches": injected}
    values |= {
        "ports": injected,
        "addresses": injected,
        "urls": injected,
        "env": fakes,
        "python": sys.executable,
        "package": ROOT,
    }
    for line in programs(service):
        words = [word.format(**values) for word in line]
        path = f"{fakes}:{os.environ['PATH']}"
        done = subprocess.run(words, cwd=tmp_path, env={"PATH": path}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert not list(tmp_path.rglob("P"))
    assert all(path.is_relative_to(data) for path in tmp_path.rglob("*") if fakes not in (path, *path.parents))
