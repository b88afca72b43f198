"""How `bench prepare` gets images: from a registry by digest, or built without a network; once, and checked."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from boxes import CLUSTER, Boxed
from tiny_registry import Registry, sha256

from seamark.services.images.prepare import PreparationStep, missing, prepare
from seamark.services.images.study_images import StudyImages
from seamark.storage.documents import read_json

pytestmark = [pytest.mark.services, pytest.mark.cluster]

KNOWS = b"#!/bin/sh\necho 'usage: tiny [--port PORT] [--some-thing]'\n"
NO_NETWORK = ("unshare", "--map-root-user", "--net", "--")


def tiny(boxes: Boxed, registry: Registry, *flags: str, digest: str | None = None, site: str = "boxes") -> None:
    """Write a recipe whose image is in the registry, a site that keeps images in the study, and a scenario of it."""
    recipe = {
        "name": "tiny",
        "component": "null",
        "summary": "A server in an image of a registry",
        "version": "1",
        "licence": "Apache-2.0",
        "driver": "seamark.drivers.null:Null",
        "workers": "wire",
        "settings": {},
        "server": {"command": ["tiny", "--port={ports[main]}"]},
        "container": {
            "image": f"{registry.address}:1",
            "digest": digest,
            "command": ["tiny", "--port={ports[main]}", *flags],
            "flags": ["sh", "/bin/tiny", "--help"],
        },
    }
    (boxes.root / "config" / "services" / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    boxes.site(site, containers=boxes.root / "images")
    boxes.scenario("tiny")


def step_of(steps: list[PreparationStep], name: str) -> PreparationStep:
    return next(step for step in steps if step.name == name)


@pytest.mark.covers("E-FR06", "E-FR13", "E-RISK")
def test_an_image_is_pulled_by_the_digest_that_its_tag_had_and_never_again(boxes: Boxed, registry: Registry):
    digest = registry.push("1", {"bin/tiny": KNOWS})
    tiny(boxes, registry, "--some-thing=1")
    assert [step.state for step in missing(boxes.study())] == ["missing"]
    made = step_of(prepare(boxes.study()), "tiny")
    assert (made.state, made.digest, made.flags, made.why) == ("made", digest, "known", None)
    assert Path(made.path).name == f"tiny-{digest.removeprefix('sha256:')[:12]}.sif"
    assert Path(made.path).stat().st_size == made.size_bytes
    entry = yaml.safe_load((boxes.root / "containers" / "images.lock.yaml").read_text())["tiny"]
    assert entry == {
        "source": f"{registry.address}:1",
        "digest": digest,
        "licence": "Apache-2.0",
        "size_bytes": made.size_bytes,
    }
    registry.push("1", {"bin/tiny": KNOWS, "newer": b"1"})  # whoever prepares again must not get this
    registry.asked.clear()
    again = step_of(prepare(boxes.study(), verify=True), "tiny")
    assert (again.state, again.digest) == ("there", digest)
    assert registry.asked == []


@pytest.mark.sweep
def test_another_machine_gets_what_the_lock_says_and_not_what_the_tag_has_now(boxes: Boxed, registry: Registry):
    digest = registry.push("1", {"bin/tiny": KNOWS})
    tiny(boxes, registry)
    prepare(boxes.study())
    registry.push("1", {"bin/tiny": KNOWS, "newer": b"1"})
    boxes.site("other", containers=boxes.root / "elsewhere")
    made = step_of(prepare(boxes.study("other")), "tiny")
    assert (made.state, made.digest, Path(made.path).parent.name) == ("made", digest, "elsewhere")


@pytest.mark.sweep
@pytest.mark.covers("E-FR06", "E-FR24")
def test_a_part_in_an_image_of_its_own_has_it_pulled_and_noted_like_the_servers(boxes: Boxed, registry: Registry):
    registry.push("1", {"bin/tiny": KNOWS})
    tiny(boxes, registry)
    digest = registry.push("store", {"bin/store": KNOWS})
    path = boxes.root / "config" / "services" / "tiny.yaml"
    recipe = yaml.safe_load(path.read_text())
    own = {"image": f"{registry.address}:store", "licence": "AGPL-3.0-only"}
    recipe["server"]["parts"] = [
        {"name": "store", "command": ["store"], "container": own},
        {"name": "worker", "command": ["tiny"]},
    ]
    path.write_text(yaml.safe_dump(recipe))
    assert [step.name for step in missing(boxes.study())] == ["tiny", "tiny-store"]
    made = step_of(prepare(boxes.study()), "tiny-store")
    assert (made.state, made.digest, made.licence) == ("made", digest, "AGPL-3.0-only")
    entry = yaml.safe_load((boxes.root / "containers" / "images.lock.yaml").read_text())["tiny-store"]
    assert (entry["digest"], entry["licence"]) == (digest, "AGPL-3.0-only")
    found = StudyImages(study=boxes.study()).of_parts(boxes.study().plan.deployments[0])
    assert {name: str(image.path) for name, image in found.items()} == {"store": made.path}


@pytest.mark.sweep
@pytest.mark.covers("E-MR04", "E-EX")
def test_an_image_that_a_scenario_names_is_put_there_and_one_that_is_there_is_only_read(
    boxes: Boxed, registry: Registry
):
    digest = registry.push("1", {"bin/tiny": KNOWS})
    tiny(boxes, registry)
    named = boxes.root / "mine.sif"
    boxes.scenario("tiny", artifacts={"container": str(named)})
    made = step_of(prepare(boxes.study()), "tiny")
    assert (made.state, made.path, made.digest) == ("made", str(named), digest)
    assert step_of(prepare(boxes.study()), "tiny").state == "there"
    own = boxes.root / "own.sif"
    own.write_bytes(named.read_bytes())
    boxes.scenario("tiny", artifacts={"container": str(own)})
    registry.asked.clear()
    read = step_of(prepare(boxes.study()), "tiny")
    assert (read.state, read.digest, read.source) == ("there", None, str(own))
    assert read_json(boxes.root / "own.sif.json")["sha256"] == sha256(own.read_bytes()).removeprefix("sha256:")
    assert registry.asked == []


@pytest.mark.covers("E-FR13")
def test_a_digest_that_the_registry_does_not_have_is_said_and_nothing_is_kept(boxes: Boxed, registry: Registry):
    registry.push("1", {"bin/tiny": KNOWS})
    tiny(boxes, registry, digest="sha256:" + "0" * 64)
    failed = step_of(prepare(boxes.study()), "tiny")
    assert failed.state == "failed"
    assert "has no such image" in (failed.why or "")
    assert list((boxes.root / "images").glob("*.sif")) == []


@pytest.mark.covers("E-FR13")
def test_a_layer_that_is_not_what_its_digest_says_is_refused(boxes: Boxed, registry: Registry):
    registry.push("1", {"bin/tiny": KNOWS})
    layer = max(registry.blobs, key=lambda name: len(registry.blobs[name]))
    registry.blobs[layer] = registry.blobs[layer][:-1] + b"x"
    tiny(boxes, registry)
    failed = step_of(prepare(boxes.study()), "tiny")
    assert failed.state == "failed"
    assert "could not be made" in (failed.why or "")
    assert list((boxes.root / "images").glob("*.sif")) == []


def test_an_image_that_was_changed_since_is_found_out(boxes: Boxed, registry: Registry):
    registry.push("1", {"bin/tiny": KNOWS})
    tiny(boxes, registry)
    image = Path(step_of(prepare(boxes.study()), "tiny").path)
    whole = image.read_bytes()
    image.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert step_of(prepare(boxes.study()), "tiny").state == "there"  # not read: same size
    assert "not what was made" in (step_of(prepare(boxes.study(), verify=True), "tiny").why or "")
    image.write_bytes(whole[:-1])
    assert step_of(missing(boxes.study()), "tiny").state == "missing"
    assert step_of(prepare(boxes.study()), "tiny").state == "made"


@pytest.mark.covers("E-SVR05")
def test_a_flag_that_the_engine_does_not_know_is_found_before_anything_is_submitted(boxes: Boxed, registry: Registry):
    registry.push("1", {"bin/tiny": KNOWS})
    tiny(boxes, registry, "--some-thin=1")
    failed = step_of(prepare(boxes.study()), "tiny")
    assert failed.state == "failed"
    assert "knows no flag --some-thin" in (failed.why or "")
    assert "Did you mean 'some-thing'?" in (failed.why or "")


def test_a_registry_that_cannot_be_reached_says_what_to_do_without_a_network(boxes: Boxed, registry: Registry):
    registry.address = "docker://127.0.0.1:9/tiny"
    tiny(boxes, registry)
    done = boxes.bench("prepare", "-c", "boxed.yaml", "--site", "boxes", code=3)
    assert "cannot be reached" in done.stdout
    assert "images.build" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_an_image_that_has_no_room_is_not_begun(boxes: Boxed, registry: Registry):
    registry.push("1", {"bin/tiny": KNOWS}, layer_bytes=10**15)
    tiny(boxes, registry)
    failed = step_of(prepare(boxes.study()), "tiny")
    assert "3000000.0 GB are needed" in (failed.why or "")
    assert not any("blobs" in path for path in registry.asked)


@pytest.mark.covers("E-MR03")
def test_without_apptainer_the_module_line_is_the_remedy(boxes: Boxed, registry: Registry):
    registry.push("1", {"bin/tiny": KNOWS})
    tiny(boxes, registry)
    done = boxes.bench(
        "prepare", "-c", "boxed.yaml", "--site", "boxes", environment={"PATH": str(boxes.root)}, code=3
    )
    assert "name its module in `modules` of the site" in done.stdout


@pytest.mark.covers("E-FR06")
def test_submit_asks_for_images_before_it_submits_anything(boxes: Boxed, registry: Registry):
    tiny(boxes, registry)
    done = boxes.bench("submit", "-c", "boxed.yaml", "--site", "boxes", code=3)
    assert "bench prepare -c boxed.yaml --site boxes" in done.stderr
    assert not (boxes.root / "results").exists()


@pytest.mark.sweep
@pytest.mark.covers("E1", "E-FR06", "E-SVC", "E-NFR02")
def test_an_image_is_built_without_a_network_from_a_folder_of_wheels_and_only_once(boxes: Boxed, tmp_path: Path):
    wheels = tmp_path / "wheels"
    lock = boxes.study_of("null").file("envs/client.lock")
    options = ["--quiet", "--require-hashes", "--no-deps"]
    words = ["-m", "pip", "download", *options, "-r", str(lock), "--dest", str(wheels)]
    subprocess.run([sys.executable, *words], check=True)
    boxes.site(containers=boxes.root / "images", wheels=str(wheels))
    command = ("prepare", "-c", "boxed.yaml", "--site", "boxes", "--json")
    first = json.loads(boxes.bench(*command, before=NO_NETWORK).stdout)["steps"]
    assert [(step["name"], step["state"], step["why"]) for step in first] == [("client-built", "made", None)]
    image = Path(first[0]["path"])
    made_at = image.stat().st_mtime_ns
    again = json.loads(boxes.bench(*command, before=NO_NETWORK).stdout)["steps"]
    assert [step["state"] for step in again] == ["there"]
    assert image.stat().st_mtime_ns == made_at
    facts = read_json(image.with_name(f"{image.name}.json"))
    assert facts["sha256"] == sha256(image.read_bytes()).removeprefix("sha256:")
    assert facts["licence"] == "Apache-2.0 AND BSD-3-Clause AND MIT"
    left = {path.name for path in image.parent.iterdir() if not path.name.startswith(".")}
    assert left == {image.name, f"{image.name}.json", f"{image.name}.log"}


@pytest.mark.sweep
def test_what_an_image_is_built_from_gives_it_its_name(boxes: Boxed):
    def name() -> str:
        study = boxes.study()
        image = StudyImages(study=study).of_server(study.plan.deployments[0])
        assert image is not None
        return image.path.name

    boxes.scenario("postgres")
    before = name()
    (boxes.root / "containers").mkdir()
    shipped = boxes.study().file("containers/environment.sh").read_text()
    for file in ("environment.sh", "postgres.def"):
        (boxes.root / "containers" / file).write_text(boxes.study().file(f"containers/{file}").read_text())
    assert name() == before
    (boxes.root / "containers" / "environment.sh").write_text(shipped + "# newer\n")
    assert name() != before


@pytest.mark.sweep
@pytest.mark.covers("E-FR06", "E-MLX01", "E-MR01")
def test_a_job_prepares_where_the_site_says_so(boxes: Boxed, tmp_path: Path):
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "sbatch").write_text(FAKE_SBATCH.format(record=tmp_path / "sbatch"))
    (bin_folder / "sbatch").chmod(0o755)
    boxes.site(where="job", job=["--time=01:00:00"], containers=CLUSTER / "images")
    boxes.scenario("null", account="p200000", partition="cpu", qos="default")
    path = {"PATH": f"{bin_folder}:{os.environ['PATH']}"}
    done = boxes.bench("prepare", "-c", "boxed.yaml", "--site", "boxes", environment=path, code=0)
    assert "client-built" in done.stdout
    asked = (tmp_path / "sbatch").read_text().splitlines()
    assert {"--wait", "--account=p200000", "--partition=cpu", "--qos=default", "--time=01:00:00"} <= set(asked)


FAKE_SBATCH = """#!/bin/sh
printf '%s\\n' "$@" > {record}
echo 4711
for word; do
    case $word in
    --output=*) out=$(echo "${{word#*=}}" | sed 's/%x/seamark-prepare/; s/%j/4711/') ;;
    --error=*) err=$(echo "${{word#*=}}" | sed 's/%x/seamark-prepare/; s/%j/4711/') ;;
    --wrap=*) command=${{word#*=}} ;;
    esac
done
sh -c "$command" > "$out" 2> "$err"
"""
