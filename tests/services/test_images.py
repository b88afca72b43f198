"""Addresses, names and digests of images; what a registry is asked; which flags a recipe's command has."""

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from answering import Reply, answering
from shipped import SERVICES

from seamark.errors import SiteError, UserError
from seamark.housekeeping.doctor import _digests
from seamark.model.site import Images
from seamark.planning.study import SHIPPED, Study
from seamark.services.images.engine_flags import flags_of
from seamark.services.images.images import (
    Image,
    LockEntry,
    client_lock,
    digest_of_parts,
    full_address,
    image_file,
    read_lock,
    split_tag,
    write_lock,
)
from seamark.services.images.registry import resolve_address
from seamark.services.images.study_images import JOBS, LOCK, StudyImages

DIGEST = "sha256:" + "0123456789abcdef" * 4
INDEX = {
    "mediaType": "application/vnd.oci.image.index.v1+json",
    "manifests": [
        {"digest": "sha256:arm", "platform": {"os": "linux", "architecture": "arm64"}},
        {"digest": "sha256:amd", "platform": {"os": "linux", "architecture": "amd64"}},
    ],
}
MANIFEST = {"layers": [{"size": 1000}, {"size": 234}]}


@pytest.mark.parametrize(
    ("address", "repository", "tag"),
    [
        ("docker://docker.io/library/postgres:18", "docker://docker.io/library/postgres", "18"),
        ("docker://localhost:5000/postgres", "docker://localhost:5000/postgres", "latest"),
        ("docker://localhost:5000/postgres:18", "docker://localhost:5000/postgres", "18"),
        (f"docker://nvcr.io/nvidia/tritonserver@{DIGEST}", "docker://nvcr.io/nvidia/tritonserver", DIGEST),
        ("docker://postgres:18", "docker://postgres", "18"),
    ],
)
def test_an_address_is_parted_from_its_tag_or_digest_and_not_from_its_port(address: str, repository: str, tag: str):
    assert split_tag(address) == (repository, tag)


@pytest.mark.covers("E-FR13")
def test_an_image_is_pulled_by_digest_and_its_file_is_named_by_it(tmp_path: Path):
    path = image_file(tmp_path, "postgres", DIGEST)
    assert path == tmp_path / "postgres-0123456789ab.sif"
    image = Image(
        name="postgres", origin="registry", source="docker://docker.io/a/b:18", digest=DIGEST, licence="", path=path
    )
    assert image.address == f"docker://docker.io/a/b@{DIGEST}"


def test_what_an_image_is_built_from_cannot_be_shifted_from_one_file_to_the_next():
    assert digest_of_parts("ab", "c") != digest_of_parts("a", "bc")


def test_a_lock_is_read_as_it_was_written_and_another_file_is_refused(tmp_path: Path):
    lock = tmp_path / "images.lock.yaml"
    assert read_lock(lock) == {}
    entries = {"b": LockEntry(source="x", digest=DIGEST, size_bytes=3), "a": LockEntry(source="y")}
    write_lock(lock, entries)
    assert read_lock(lock) == entries
    lock.write_text("- a list")
    with pytest.raises(UserError, match="no lock of images"):
        read_lock(lock)


@pytest.mark.covers("E-FR13", "E-SVC", "E-AC03")
def test_every_image_of_a_shipped_server_or_client_is_in_the_shipped_lock():
    sources = {"python": Images().base}
    for name, service in SERVICES.items():
        if service.container is not None:
            sources[name] = full_address(service.container.image)
        parts = service.server.parts if service.server else ()
        sources |= {f"{name}-{part.name}": full_address(part.container.image) for part in parts if part.container}
    definitions = {path.stem for path in (SHIPPED / "containers").glob("*.def")} - {JOBS}
    clients = {service.environment for service in SERVICES.values() if service.environment}
    sources |= {f"{name}-built": f"containers/{name}.def" for name in (clients & definitions) | {"client"}}
    entries = read_lock(SHIPPED / LOCK)
    assert {name: entries[name].source for name in sources} == sources
    for entry in entries.values():
        assert entry.licence
        assert entry.digest is None or re.fullmatch("sha256:[0-9a-f]{64}", entry.digest)


@pytest.mark.covers("E-FR13")
def test_doctor_names_the_images_without_a_digest_and_their_remedy_until_the_study_has_them(tmp_path: Path):
    site = tmp_path / "config/sites/boxed.yaml"
    site.parent.mkdir(parents=True)
    site.write_text("name: boxed\nsummary: A box.\nruntime: apptainer\npaths: {containers: /nowhere}\n")
    (tmp_path / "try.yaml").write_text("scenario: try\nworkload: {service: postgres, duration_s: 1}\n")
    study = Study.at(tmp_path, scenario="try.yaml", site="boxed")
    found = _digests(study)
    assert found.level == "warning"
    assert "bench prepare" in found.remedy
    assert {"postgres", "postgres-built", "client-built"} <= set(re.split("[ ,.]+", found.remedy))
    write_lock(
        tmp_path / LOCK, {"postgres": LockEntry(source="docker://docker.io/library/postgres:18", digest=DIGEST)}
    )
    study = Study.at(tmp_path, scenario="try.yaml", site="boxed")
    assert _digests(study).level == "ok"
    assert StudyImages(study=study).of_server(study.plan.deployments[0]).digest == DIGEST


def test_a_load_on_somebody_elses_image_needs_no_environment_that_holds_the_server(tmp_path: Path):
    image = Image(name="x", origin="registry", source="", digest=DIGEST, licence="", path=tmp_path / "x.sif")
    built = replace(image, origin="definition")
    assert [client_lock(SERVICES["vllm"], each) for each in (None, built, image)] == ["vllm", "vllm", None]
    assert client_lock(SERVICES["postgres"], image) == "postgres", "psycopg2 is in it"


def test_flags_are_found_in_a_command_and_switches_by_their_setting():
    command = ("vllm", "serve", "{settings[model]}", "--max-model-len=4", "{switches[enforce_eager]}", "-D", "--x")
    assert flags_of(command) == ["max-model-len", "enforce-eager", "x"]


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """A registry that wants a token: its address, and what was asked of it with which credentials."""
    told: list[str] = []

    def reply(request: BaseHTTPRequestHandler, _: bytes) -> Reply:
        given, path = request.headers.get("Authorization", ""), request.path
        told.append(f"{path} {given}".strip())
        if path.startswith("/token"):
            return 200, b'{"token": "open"}', {}
        if given != "Bearer open":
            where = f"http://{request.headers['Host']}/token"
            return 401, b"{}", {"WWW-Authenticate": f'Bearer realm="{where}",service="here",scope="ignored"'}
        if path.endswith("/manifests/1"):
            return 200, json.dumps(INDEX).encode(), {"Docker-Content-Digest": DIGEST}
        return (200, json.dumps(MANIFEST).encode(), {}) if path.endswith("sha256:amd") else (404, b"{}", {})

    with answering(reply) as port:
        yield f"docker://127.0.0.1:{port}/team/tiny", told


@pytest.mark.covers("E-FR13", "E-SEC")
def test_a_tag_is_resolved_to_the_digest_of_all_machines_and_the_size_of_ours(
    asked: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setenv("APPTAINER_DOCKER_USERNAME", "me")
    monkeypatch.setenv("APPTAINER_DOCKER_PASSWORD", "secret")
    address, told = asked
    assert resolve_address(f"{address}:1") == (DIGEST, 1234)
    tokens = [line for line in told if line.startswith("/token")]
    assert "scope=repository%3Ateam%2Ftiny%3Apull" in tokens[0]
    assert tokens[0].endswith("Basic " + base64.b64encode(b"me:secret").decode())


def test_an_image_that_is_not_for_this_machine_or_not_there_is_said(
    asked: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(SiteError, match="no image of it for riscv64"):
        resolve_address(f"{asked[0]}:1")
    with pytest.raises(UserError, match="has no such image"):
        resolve_address(f"{asked[0]}:2")
    with pytest.raises(UserError, match="docker:// and oras:// only"):
        resolve_address("shub://somewhere/x:1")
