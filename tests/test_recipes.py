"""What ships as recipes: each says why it is here, what was seen running in Apptainer, and has an image to run in."""

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from seamark.images import StudyImages
from seamark.model.read import read_services
from seamark.model.service import Service
from seamark.study import Study

ROOT = Path(__file__).resolve().parents[1]
SERVICES = read_services(ROOT / "config" / "services")
sys.path.insert(0, str(ROOT / "docs"))
reference = import_module("reference")

every_recipe = pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)


def section(service: Service) -> str:
    """Return what the page on services has under a recipe's heading."""
    page = reference.services_page(ROOT / "config" / "services")
    return re.split(r"\n## ", page.split(f"\n## {service.name}\n", 1)[1])[0]


@pytest.mark.covers("E-AC03", "E-RISK")
@every_recipe
def test_a_recipe_says_why_it_is_here_what_it_stands_for_and_its_licence(service: Service) -> None:
    assert "stands for" in service.why
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


@pytest.mark.covers("E-AC03", "E-FR06")
@every_recipe
def test_a_recipe_has_an_image_to_run_in(service: Service, tmp_path: Path) -> None:
    (tmp_path / "config/sites").mkdir(parents=True)
    site = {"name": "boxes", "summary": "images", "runtime": "apptainer", "images": {"client": True}}
    (tmp_path / "config/sites/boxes.yaml").write_text(yaml.safe_dump(site))
    nodes = service.server.fewest_nodes if service.server else 1
    scenario = {"scenario": "try", "resources": {"nodes": nodes}, "workload": {"service": service.name}}
    (tmp_path / "try.yaml").write_text(yaml.safe_dump(scenario))
    images = StudyImages(study=Study.at(tmp_path, scenario="try.yaml", site="boxes"))
    found = [images.of_client(service), *([images.of_server(service, None)] if service.server else [])]
    for image in found:
        assert image is not None
        assert image.path.suffix == ".sif"
        assert image.origin == "registry" or (ROOT / image.source).is_file()
        assert image.licence
