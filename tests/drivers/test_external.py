"""Every service with a server, measured where the server runs already: the test starts it, and no supervisor."""

import json
import os
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from service_environment import CACHE, ROOT, ask, environment
from storage import serving
from study_folder import StudyFolder
from tls_front import TlsFront

from seamark.drivers.http import Http
from seamark.errors import UserError
from seamark.load.coordinator.coordinator import LoadOutcome, run_load
from seamark.load.driver import Target
from seamark.model.results.deployment_record import Endpoint
from seamark.planning.study import Study
from seamark.services.ephemeral_server import ephemeral_server
from seamark.services.runtimes.environments import missing_environments
from seamark.services.supervisor import deployment as servers
from seamark.services.supervisor.control_files import control_files_of, is_alive
from seamark.storage.redaction import redacted
from seamark.trials.deployment_context import DeploymentContext
from seamark.trials.kinds import timed_load

BLOCK = re.compile(r"^```yaml\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHORT = {"duration_s": 0.5, "warmup_s": 0, "concurrency": 2}


def block_with(page: str, text: str) -> dict[str, Any]:
    """Return the YAML block of a page that has that text."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.M | re.S)
    [found] = [block for block in blocks if text in block]
    document: dict[str, Any] = yaml.safe_load(found)
    return document


def study_of(root: Path, service: str, site: dict[str, Any], **workload: Any) -> Study:
    """Return a study of one trial on a site with an external server."""
    folder = StudyFolder.new(root / "study")
    paths = {"environments": str(CACHE / "envs")}
    document = {"name": "outside", "summary": "a server that runs already", "runtime": "external", "paths": paths}
    (folder.root / "config/sites/outside.yaml").write_text(yaml.safe_dump(document | site))
    (folder.root / "config/scenarios/try.yaml").write_text(
        yaml.safe_dump(
            {"scenario": "try", "repetitions": 1, "workload": {"service": service, **SHORT, **workload}},
        )
    )
    return Study.at(folder.root, scenario="config/scenarios/try.yaml", site="outside")


@contextmanager
def beside(study: Study) -> Iterator[tuple[DeploymentContext, Endpoint]]:
    """Prepare the external server of a study as a run does; give the answer."""
    study.require_environments()
    study.require_drivers()
    context = DeploymentContext.of(study, study.plan.scenario, study.plan.deployments[0].id)
    endpoint = servers.serve_planned(study, context.scenario, context.deployment, study.site, context.folder)
    try:
        yield context, endpoint
    finally:
        servers.stop(context.folder)


def measured(study: Study) -> tuple[Endpoint, LoadOutcome]:
    """Measure the trial of a study beside its server."""
    with beside(study) as (context, endpoint):
        assert endpoint.ok, endpoint
        trial = study.plan.trials[0]
        python, parts = context.client_python(endpoint), study.root / "parts"
        outcome = run_load(context.load_job(trial, endpoint), python, parts, lambda: servers.renew(context.folder))
    assert endpoint.server_pid is None
    assert outcome.completed > 0
    assert all(report.ok for report in outcome.reports), outcome.reports
    return endpoint, outcome


@pytest.mark.services
def test_a_postgres_that_runs_already_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with serving("postgres", tmp_path / "server") as served:
        monkeypatch.setenv("PGUSER", "bench")
        monkeypatch.setenv("PGPASSWORD", (served.data / "password").read_text())
        site = {"address": f"127.0.0.1:{served.endpoint['ports']['main']}"}
        endpoint, _ = measured(study_of(tmp_path, "postgres", site, operation="tpcb"))
    assert endpoint.facts["accounts"] == 100_000


def _answer_to_tls(connection: socket.socket) -> None:
    """Answer as PostgreSQL: N to a request for encryption by GSS, S to one for TLS."""
    while connection.recv(8, socket.MSG_WAITALL)[4:] == struct.pack("!i", 80877104):
        connection.sendall(b"N")
    connection.sendall(b"S")


@pytest.mark.covers("E-FR17", "E-SEC")
@pytest.mark.services
def test_a_postgres_is_measured_over_tls_with_a_password_by_reference_and_parameters_of_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tls_front: Callable[[int], TlsFront]
):
    with serving("postgres", tmp_path / "server") as served:
        monkeypatch.setenv("PGUSER", "bench")
        monkeypatch.setenv("KEY_OF_MINE", (served.data / "password").read_text())
        front = tls_front(served.endpoint["ports"]["main"])
        front.greet = _answer_to_tls
        secure = {"password": "env:KEY_OF_MINE", "sslmode": "verify-full", "sslrootcert": str(front.certificate)}
        parameters = {"work_mem": "3MB", "of.mine": "a\\ b"}
        site = {"address": f"127.0.0.1:{front.port}"}
        endpoint, _ = measured(study_of(tmp_path, "postgres", site, **secure, server_settings=parameters))
        assert front.heard(b"prepare lookup")
    assert json.loads(str(endpoint.facts["server_settings"])) == parameters


@pytest.mark.covers("E-FR17", "E-SEC")
@pytest.mark.services
def test_what_a_postgres_refuses_is_the_reason_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PGUSER", "bench")
    monkeypatch.setenv("KEY_OF_MINE", "wrong")
    wrong: dict[str, dict[str, Any]] = {
        "password authentication failed": {"password": "env:KEY_OF_MINE"},
        "does not support SSL": {"sslmode": "require"},
        "cannot be changed without restarting": {"server_settings": {"max_wal_senders": 5}},
    }
    with serving("postgres", tmp_path / "server") as served:
        site = {"address": f"127.0.0.1:{served.endpoint['ports']['main']}"}
        right = {"password": f"file:{served.data / 'password'}"}
        for words, settings in wrong.items():
            with beside(study_of(tmp_path / words, "postgres", site, **{**right, **settings})) as (_, endpoint):
                assert (endpoint.category, words in str(endpoint.reason)) == ("setup_failed", True), endpoint.reason


@pytest.mark.services
@pytest.mark.parametrize("metrics", [False, True])
def test_an_s3_endpoint_that_runs_already_is_measured_with_and_without_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metrics: bool
):
    with serving("s3", tmp_path / "server") as served:
        key, secret = (served.data / "credentials").read_text().split(",")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
        ports = served.endpoint["ports"]
        site = {"address": f"127.0.0.1:{ports['main']}"} | (
            {"ports": {"metrics": ports["metrics"]}} if metrics else {}
        )
        endpoint, _ = measured(study_of(tmp_path, "s3", site, objects=8, object_bytes=4096, operation="mixed"))
    assert (endpoint.metrics_url is not None) == metrics


@pytest.mark.services
def test_a_triton_that_runs_already_is_measured_by_its_address_alone(tmp_path: Path):
    with serving("triton", tmp_path / "server") as served:
        site = {"address": f"127.0.0.1:{served.endpoint['ports']['http']}"}
        endpoint, _ = measured(study_of(tmp_path, "triton", site))
    assert endpoint.ports == {"http": served.endpoint["ports"]["http"]}


@pytest.mark.sweep
@pytest.mark.services
def test_a_milvus_that_runs_already_is_measured_by_its_address_alone(tmp_path: Path):
    with serving("milvus", tmp_path / "server") as served:
        site = {"address": f"127.0.0.1:{served.endpoint['ports']['main']}"}
        endpoint, _ = measured(study_of(tmp_path, "milvus", site, index="flat", vectors=1000, queries=50))
    assert endpoint.metrics_url is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("service", "workload", "host"),
    [
        ("known", {"gen_tokens": 4}, "127.0.0.1"),
        ("vllm", {"model": "m", "endpoint": "completions", "prompt_len": 64, "gen_tokens": 8}, "127.0.0.1"),
        ("null", {}, "127.0.0.1"),
        ("http", {"path": "/v1/models"}, "127.0.0.1"),
        ("http", {"path": "/v1/models"}, "[::1]"),
        ("vllm", {"model": "m", **block_with("how-to-laptop.md", "extra_body: {")["workload"]}, "127.0.0.1"),
    ],
)
def test_a_server_that_needs_nothing_is_measured_and_nothing_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: str, workload: dict[str, Any], host: str
):
    if host == "[::1]" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 here")
    monkeypatch.setenv("KEY", "of-the-page")
    listens = host.strip("[]")
    with ephemeral_server("seamark.testservers.reference", "--ttft-ms", "5", "--host", listens) as port:
        study = study_of(tmp_path, **{"service": service, "site": {"address": f"{host}:{port}"}, **workload})
        assert missing_environments(study) == ()
        endpoint, _ = measured(study)
    assert endpoint.environment is None


@pytest.mark.services
def test_an_s3_endpoint_is_measured_over_https_with_an_authority_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tls_front: Callable[[int], TlsFront]
):
    with serving("s3", tmp_path / "server") as served:
        key, secret = (served.data / "credentials").read_text().split(",")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
        front = tls_front(served.endpoint["ports"]["main"])
        secure = {"tls": "verified", "tls_ca_file": str(front.certificate)}
        site = {"address": f"127.0.0.1:{front.port}"}
        measured(study_of(tmp_path, "s3", site, objects=4, object_bytes=4096, **secure))


@pytest.mark.services
@pytest.mark.parametrize(
    ("settings", "host", "path"),
    [
        ({}, "s3.example:9000", "/b/get/"),
        ({"addressing": "virtual"}, "b.s3.example:9000", "/get/"),
        ({"addressing": "virtual", "tls": "unverified", "port": 443}, "b.s3.example", "/get/"),
    ],
)
def test_a_bucket_is_named_in_the_path_or_in_the_host(tmp_path: Path, settings: dict[str, Any], host: str, path: str):
    (tmp_path / "credentials").write_text("key,secret")
    own = {"operation": "get", "object_bytes": 1024, "objects": 10, "bucket": "b", **settings}
    where = {"settings": own, "data": str(tmp_path), "ports": {"main": own.pop("port", 9000)}}
    request = ask(environment("s3"), "inside_s3", "request", where=where, host="s3.example")
    assert request.startswith(f"GET {path}0")
    assert f"\r\nHost: {host}\r\n" in request


@pytest.mark.services
def test_what_an_s3_endpoint_answers_while_it_is_prepared_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "knows")
    with serving("s3", tmp_path / "server") as served:
        site = {"address": f"127.0.0.1:{served.endpoint['ports']['main']}"}
        with beside(study_of(tmp_path, "s3", site, objects=4, object_bytes=4096)) as (_, endpoint):
            assert endpoint.category == "setup_failed"
    assert "InvalidAccessKeyId" in str(endpoint.reason)


@pytest.mark.parametrize(
    ("service", "site", "variables", "workload", "place"),
    [
        ("s3", {"address": "https://s3.example"}, True, {}, ("outside.yaml", 1, "address")),
        ("s3", {"address": "s3.example"}, True, {}, ("outside.yaml", 1, "address")),
        ("s3", {"address": "s3.example:99999"}, True, {}, ("outside.yaml", 1, "address")),
        ("s3", {"address": "s3.example:80"}, False, {}, ("outside.yaml", 1, "address")),
        ("s3", {"address": "a:80", "ports": {"metric": 2}}, True, {}, ("outside.yaml", 6, "ports.metric")),
        ("triton", {"address": "a:80"}, True, {"protocol": "grpc"}, ("outside.yaml", 1, "address")),
    ],
)
def test_a_plan_finds_what_is_wrong_with_an_external_server(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    service: str,
    site: dict[str, Any],
    variables: bool,
    workload: dict[str, Any],
    place: tuple[str, int, str],
):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x") if variables else monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError) as raised:
        study_of(tmp_path, service, site, **workload).require_drivers()
    assert {(Path(str(each.file)).name, each.line, each.path) for each in raised.value.mistakes} == {place}


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_waited_for_once_and_no_trial_waits_again(tmp_path: Path):
    study = study_of(tmp_path, "null", {"address": "127.0.0.1:1"})
    recipe = study.root / "config/services/null.yaml"
    recipe.write_text(recipe.read_text().replace("timeout_s: 20", "timeout_s: 0.2"))
    study = Study.at(study.root, scenario="config/scenarios/try.yaml", site="outside")
    with beside(study) as (context, endpoint):
        assert endpoint.category == "server_never_healthy"
        began_s = time.monotonic()
        timed_load.measure_trial(context, study.plan.trials[0], os.getppid(), max_retries=3)
    load = json.loads(context.results.trial(study.plan.trials[0].id).load.read_text())
    assert (load["category"], load["attempt"]) == ("server_never_healthy", 1)
    assert time.monotonic() - began_s < 5


def study_of_page(
    page: str,
    name: str,
    site: str | None,
    root: Path,
    change: Callable[[str], str] = lambda text: text,
    **workload: Any,
) -> Study:
    """Return a study with the files that a page shows, and the scenario of that name, which may have a workload."""
    folder = StudyFolder.new(root / "study")
    for path, text in BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8")):
        (folder.root / path).parent.mkdir(parents=True, exist_ok=True)
        (folder.root / path).write_text(change(text))
    if workload:
        folder.write(scenario=name, repetitions=1, workload={**SHORT, **workload}).rename(
            folder.root / f"config/scenarios/{name}.yaml"
        )
    return Study.at(folder.root, scenario=f"config/scenarios/{name}.yaml", site=site)


@pytest.mark.slow
def test_a_server_of_ones_own_is_measured_by_the_eight_lines_of_the_page(tmp_path: Path):
    study = study_of_page("extending.md", "mine", None, tmp_path)
    assert len((study.root / study.scenario_path).read_text().splitlines()) == 8
    study.require_drivers()
    context = DeploymentContext.of(study, "mine", study.plan.deployments[0].id)
    endpoint = servers.serve_planned(study, "mine", context.deployment, study.site, context.folder)
    try:
        assert endpoint.ok, endpoint
        trial = study.plan.trials[0]
        job = replace(
            context.load_job(trial, endpoint), settings={**trial.settings, "duration_s": 0.5, "warmup_s": 0.0}
        )
        outcome = run_load(job, None, tmp_path / "parts", lambda: servers.renew(context.folder))
    finally:
        assert servers.stop(context.folder)
    assert outcome.completed > 0
    assert all(report.ok for report in outcome.reports)


@pytest.mark.sweep
@pytest.mark.services
def test_an_s3_endpoint_is_measured_by_the_lines_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with serving("s3", tmp_path / "server") as served:
        key, secret = (served.data / "credentials").read_text().split(",")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
        port = served.endpoint["ports"]["main"]
        study = study_of_page(
            "how-to-servers.md", "s3_of_mine", "s3_of_mine", tmp_path, lambda text: text.replace(":9000", f":{port}")
        )
        measured(study)


@pytest.mark.services
def test_a_persistent_postgres_is_measured_by_the_site_of_the_page_and_is_left_running(tmp_path: Path):
    with serving("postgres", tmp_path / "server", scale=1) as served:
        asked = {"component": "storage", "service": "postgres", "operation": "tpcb", "scale": 1}
        study = study_of_page("how-to-servers.md", "pg", "beside", tmp_path, **asked)
        standing = study.root / "results/standing/postgres-1"
        standing.parent.mkdir(parents=True)
        standing.symlink_to(served.folder.root)
        measured(study)
        assert is_alive(control_files_of(served.folder))


@pytest.mark.slow
def test_questions_are_asked_of_any_server_by_the_lines_of_the_page(tmp_path: Path):
    with ephemeral_server("seamark.testservers.reference") as port:
        study = study_of_page(
            "how-to-evaluate.md", "beside", "beside", tmp_path, lambda text: text.replace(":8000", f":{port}")
        )
        assert missing_environments(study) == ()
        measured(study)


@pytest.mark.parametrize(
    ("workload", "path"),
    [
        ({}, "service"),
        ({"command": ["python3", "server.py"]}, "command"),
        ({"command": "python3 'server.py {ports[main]}"}, "command"),
        ({"command": "python3 {nowhere} {ports[main]}"}, "command"),
        ({"command": "sh -c 'exec server {ports[main]}'"}, "command"),
    ],
)
def test_a_wrong_command_of_a_server_is_a_mistake_with_its_line(tmp_path: Path, workload: dict[str, Any], path: str):
    folder = StudyFolder.new(tmp_path / "study")
    file = folder.write(repetitions=1, workload={"component": "other", "service": "http", **workload})
    study = Study.at(folder.root, scenario=str(file))
    with pytest.raises(UserError) as raised:
        study.require_drivers()
    [line] = [number for number, text in enumerate(file.read_text().splitlines(), 1) if text.startswith(f"  {path}:")]
    assert {(each.line, each.path) for each in raised.value.mistakes} == {(line, f"workload.{path}")}


def test_what_an_http_request_says_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KEY_OF_MINE", "s3same")
    (tmp_path / "body").write_bytes(b"[1]")
    settings = {"path": "/a?b=1", "headers": '{"Authorization":"Bearer env:KEY_OF_MINE","X-A":"1"}'}

    def sent(**more: Any) -> bytes:
        driver = Http(Target(settings={**settings, **more}, data=tmp_path, host="h", ports={"main": 80}))
        return driver.encode(driver.bodies(1, 1)[0])

    assert sent() == b"GET /a?b=1 HTTP/1.1\r\nHost: h:80\r\nAuthorization: Bearer s3same\r\nX-A: 1\r\n\r\n"
    assert sent(body="{}").endswith(b"Content-Length: 2\r\n\r\n{}")
    assert sent(body="{}").startswith(b"POST ")
    assert sent(body_file=str(tmp_path / "body"), method="PUT").endswith(b"\r\n\r\n[1]")
    assert b"Content-Length: 0\r\n" in sent(method="POST")
    for wrong in ({"path": "a"}, {"body": "a", "body_file": "b"}, {"headers": '{"A":"env:NOT_SET_HERE"}'}):
        with pytest.raises(UserError):
            sent(**wrong)
    assert json.loads(redacted(settings)["headers"]) == {"Authorization": "Bearer env:KEY_OF_MINE", "X-A": "***"}
