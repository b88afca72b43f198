"""The setting `caches`: what a server has of a trial's prompts before its first request."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from answering import Reply, answering
from shipped import SERVICES
from study_folder import StudyFolder

from seamark.config.read import read_scenario
from seamark.drivers.openai.driver import OpenAi
from seamark.drivers.openai.requests import Asks
from seamark.errors import UserError
from seamark.load.coordinator.coordinator import LoadError, LoadJob, LoadOutcome, run_load
from seamark.load.driver import Target
from seamark.load.fetch import fetch
from seamark.model.results.deployment_record import Endpoint, PartRecord
from seamark.model.service import ResetCall, Server, Value
from seamark.services.ephemeral_server import ephemeral_server
from seamark.testservers.prefix_cache import BLOCK_TOKENS
from seamark.testservers.truth import read_truth
from seamark.trials.caches import reset_caches

PROMPT, PREFIX, GROUPS, REQUESTS = 100, 64, 4, 20
LOAD: dict[str, Value] = {
    "prompt_len": PROMPT,
    "prefix_len": PREFIX,
    "prefix_groups": GROUPS,
    "gen_tokens": 1,
    "concurrency": 1,
    "requests": REQUESTS,
    "duration_s": 60.0,
    "warmup_s": 0.0,
}
CHECKS = 4
"""Requests by which the driver checks its prompts after a load."""
COMPUTED_NS = 1000
ON = {"caches": "reset"}


def loaded(port: int, folder: Path, caches: str | None, seed: int = 1, **more: Value) -> LoadOutcome:
    """Run the load of a trial, after the calls that it asks for."""
    settings = {**LOAD, "caches": caches, **more}
    reset_caches(SERVICES["known"], Endpoint(status="ok", host="127.0.0.1", ports={"main": port}), settings)
    driver = "seamark.drivers.openai:OpenAi"
    job = LoadJob(driver=driver, workers="wire", settings=settings, seed=seed, data=folder, ports={"main": port})
    return run_load(job, None, folder / f"{caches}-{seed}")


def hits(port: int) -> int:
    page = fetch("127.0.0.1", port, "/metrics", limit_s=10).body.decode()
    return int(re.findall(r"known_prefix_cache_hits_total (\d+)", page)[0])


@pytest.mark.services
@pytest.mark.covers("D8", "D9")
def test_after_reset_each_prefix_misses_once_after_warm_none_and_keep_has_what_the_load_before_left(tmp_path: Path):
    served = ("--cache-tokens=100000", f"--prefill-ms={COMPUTED_NS / 1e6}", f"--truth={tmp_path / 'truth'}")
    with ephemeral_server("seamark.testservers.reference", *served) as port:
        loaded(port, tmp_path, None)
        loaded(port, tmp_path, "keep")
        loaded(port, tmp_path, "reset")
        outcome = loaded(port, tmp_path, "warm", seed=2)
    assert outcome.warmed is not None
    assert outcome.warmed.requests == GROUPS
    truth = read_truth(tmp_path / "truth")
    computed = ((truth.due_ns - truth.read_ns) // COMPUTED_NS).tolist()
    kept, first, trial = PROMPT - PREFIX, PROMPT, REQUESTS + CHECKS
    before, keep, reset = (computed[at : at + REQUESTS] for at in (0, trial, 2 * trial))
    assert (before.count(first), before.count(kept)) == (GROUPS, REQUESTS - GROUPS)
    assert keep == [PROMPT % BLOCK_TOKENS] * REQUESTS  # the prompts are those of the load before
    assert reset == before
    assert computed[3 * trial :][: GROUPS + REQUESTS] == [PREFIX] * GROUPS + [kept] * REQUESTS


@pytest.mark.services
@pytest.mark.covers("D8")
def test_each_class_of_a_mix_has_prefixes_and_one_that_is_not_answered_is_the_servers_failure(tmp_path: Path):
    mix = json.dumps(
        {"long": {"prefix_groups": 3}, "short": {"prompt_len": 40, "prefix_len": 32, "prefix_groups": 2}}
    )
    with ephemeral_server("seamark.testservers.reference", "--cache-tokens=100000") as port:
        outcome = loaded(port, tmp_path, "warm", mix=mix)
    assert outcome.warmed is not None
    assert outcome.warmed.requests == 5
    with (
        ephemeral_server("seamark.testservers.reference", "--error-every=2") as port,
        pytest.raises(LoadError, match="503") as caught,
    ):
        loaded(port, tmp_path, "warm", seed=3)
    assert caught.value.category == "setup_failed"


FORMS: tuple[dict[str, Value], ...] = (
    {},
    {"prompt_form": "text"},
    {"batch": 3},
    {"endpoint": "chat"},
    {"endpoint": "chat", "turns": 3},
    {"turns": 3},
    {"prompt_len_shape": "uniform", "prompt_len_spread": 0.6},
)


@pytest.mark.parametrize("more", FORMS, ids=str)
def test_the_prefixes_of_a_trial_are_those_of_its_groups_in_every_form_of_a_prompt(more: dict[str, Value]):
    settings = {**LOAD, **more}
    target = Target(settings=settings, data=Path(), ports={"main": 1})
    asks = Asks(settings, str(more.get("endpoint", "completions")), target.load.turns)
    bodies = OpenAi(target).bodies(60, 1)
    found = [list(asks.prefixes(body.content)) for body in bodies]
    sent = {prefix if isinstance(prefix, str) else tuple(prefix) for prefixes in found for prefix in prefixes}
    assert len(sent) == GROUPS
    assert {len(prefix.split() if isinstance(prefix, str) else prefix) for prefix in sent} == {PREFIX}
    for body, prefixes in zip(bodies, found, strict=True):
        for prompt, prefix in zip(body.content.prompts, prefixes, strict=False):
            whole = isinstance(prompt, str)
            assert prompt.startswith(prefix) if whole else prompt[:PREFIX].tolist() == prefix.tolist()


@pytest.fixture
def pool() -> Iterator[list[int]]:
    served = ("seamark.testservers.reference", "--cache-tokens=100000")
    with ephemeral_server(*served) as first, ephemeral_server(*served) as second:
        yield [first, second]


def endpoint_of(ports: list[int]) -> Endpoint:
    parts = [PartRecord(name=f"replica-{n}", host="127.0.0.1", ports={"replica": p}) for n, p in enumerate(ports, 1)]
    return Endpoint(status="ok", host="127.0.0.1", ports={"main": 1, "metrics": 2}, parts=tuple(parts))


@pytest.mark.services
@pytest.mark.covers("D8", "D9")
def test_every_replica_of_a_pool_is_reset_and_its_router_is_not_asked(pool: list[int]):
    body = json.dumps({"prompt": list(range(65)), "max_tokens": 1}).encode()

    def asked() -> list[int]:
        for port in pool:
            assert fetch("127.0.0.1", port, "/v1/completions", limit_s=10, method="POST", body=body).status == 200
        return [hits(port) for port in pool]

    recipe = SERVICES["inference_pool"]
    assert [asked(), asked()] == [[0, 0], [64, 64]]
    reset_caches(recipe, endpoint_of(pool), ON)
    assert [asked(), asked()] == [[64, 64], [128, 128]]
    with pytest.raises(LoadError) as caught:
        reset_caches(recipe, endpoint_of([]), ON)  # as of a pool that Seamark did not start
    assert caught.value.category == "setup_failed"


@pytest.mark.covers("D8")
def test_a_call_that_fails_is_told_with_its_status_and_one_to_a_busy_server_is_made_again():
    statuses, seen = [(404, b""), (200, b'{"success": false}'), (200, b'{"success": true}'), (204, b"")], list[str]()

    def reply(request: BaseHTTPRequestHandler, _: bytes) -> Reply:
        status, body = statuses[len(seen)]
        seen.append(f"{request.command} {request.path}")
        return status, body, {}

    with answering(reply) as port:
        server = Server(command=("x",), reset_caches=ResetCall(path="/flush", method="GET"))
        service = replace(SERVICES["known"], server=server)
        endpoint = Endpoint(status="ok", host="127.0.0.1", ports={"main": port})
        reset_caches(service, endpoint, {"caches": "keep"})
        assert not seen
        with pytest.raises(LoadError, match="HTTP 404") as caught:
            reset_caches(service, endpoint, ON, "chat")
        assert (caught.value.load, caught.value.category) == ("chat", "setup_failed")
        reset_caches(service, endpoint, ON)
        assert seen == ["GET /flush"] * 3
    with pytest.raises(LoadError):
        reset_caches(service, endpoint, ON)  # nothing listens there any more


@pytest.mark.covers("D9", "E-VAL")
@pytest.mark.parametrize(
    ("service", "written", "line"),
    [
        ("stateless", "caches: [keep, reset]", 4),
        ("stateless", "include: [{caches: reset}]", 4),
        ("vllm", "caches: reset", 4),
        ("vllm", "dev_mode: [true, false]\n  caches: reset", 5),
    ],
)
def test_a_reset_that_no_server_takes_is_a_mistake_with_its_line(
    service: str, written: str, line: int, tmp_path: Path
):
    without = replace(SERVICES["known"], name="stateless", server=Server(command=("x",)))
    path = tmp_path / "try.yaml"
    path.write_text(f"scenario: try\nworkload:\n  service: {service}\n  {written}\n")
    with pytest.raises(UserError) as caught:
        read_scenario(path, {**SERVICES, "stateless": without})
    [mistake] = caught.value.mistakes
    name = "include" if "include" in written else "caches[1]" if "[keep" in written else "caches"
    assert (mistake.code, mistake.line, mistake.path) == ("invalid", line, f"workload.{name}")
    path.write_text(f"scenario: try\nworkload: {{service: {service}, caches: [keep, warm], prefix_len: 8}}\n")
    assert read_scenario(path, {**SERVICES, "stateless": without}).workloads[0].levels["caches"] == ("keep", "warm")


@pytest.mark.covers("D9", "E-NFR04")
@pytest.mark.e2e
@pytest.mark.services
def test_a_failed_call_fails_its_trial_alone_and_what_was_sent_before_is_recorded(tmp_path: Path):
    study = StudyFolder.new(tmp_path / "study")
    recipe = study.root / "config/services/known.yaml"
    text = recipe.read_text()
    assert "{path: /reset_prefix_cache}" in text
    recipe.write_text(text.replace("{path: /reset_prefix_cache}", "{path: /nowhere}"))
    workload = {**LOAD, "component": "inference", "service": "known", "cache_tokens": 4096, "duration_s": 5.0}
    path = study.write(workload={**workload, "caches": "warm", "prefix_len": 0}, repetitions=1)
    line = next(at for at, text in enumerate(path.read_text().splitlines(), 1) if "caches" in text)
    assert f"try.yaml:{line}: workload.caches: " in study.ask("plan", "-c", str(path), code=2).stderr
    study.write(workload={**workload, "caches": ["reset", "warm"]}, repetitions=1)
    study.measure()
    loads = [json.loads((trial / "load.json").read_text()) for trial in study.trials()]
    failed, good = sorted(loads, key=lambda load: load["status"])
    assert (failed["status"], failed["category"]) == ("failed", "setup_failed")
    assert "/nowhere: HTTP 404" in failed["reason"]
    assert (good["status"], good["warmed"]["requests"], good["rows"]) == ("ok", GROUPS, REQUESTS)
