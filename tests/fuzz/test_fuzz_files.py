"""Whatever stands in a file that bench reads, it is accepted or refused in lines of text: no traceback, no hang."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import shipped
from harm import Harm, fuzz
from hypothesis import strategies as st
from shipped import SERVICES
from yaml_changes import changed_files, odd_values

from seamark.cli.main import cli
from seamark.config.expression import condition, slo_parts
from seamark.config.read import read_scenario, read_services, read_site
from seamark.errors import UserError
from seamark.planning.plan import plan
from seamark.planning.plan_text import describe, plan_facts
from seamark.storage.codec import encode

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config"
SITES = {name: read_site(CONFIG / "sites" / f"{name}.yaml") for name in ("local", "meluxina")}
QUICK, WHOLE = 60, 1700

OTHER = """\
scenario: other
extends: base.yaml
repetitions: 2
max_retries: 1
resources: {nodes: 1, gpus: [0, 1], cpus_per_task: 2, mem_gb: 4}
defaults: {duration_s: 2.0, timeout_s: 5}
workloads:
  - name: one
    service: known
    pattern: [constant, poisson]
    rate_rps: [10, 20.5]
    turns: 2
    slos: [ttft_p95_s <= 0.2, throughput >= 5]
    where: [rate_rps < 20 or pattern == 'poisson', 'concurrency in [1, 2]']
    exclude: [{rate_rps: 10, pattern: constant}]
    include: [{rate_rps: 30}]
  - name: two
    service: "null"
    pattern: steps
    step_rates: 50:1,100:2
    mix: null
  - name: three
    service: known
    mix: {chat: {weight: 3, prompt_len: 8}, search: {prompt_len: 40, gen_tokens: 6}}
  - name: four
    service: "null"
    pattern: poisson
    slos: latency_p99_s <= 0.2
    search: {setting: rate_rps, from: 10, to: 1000, within: 0.05, budget_s: 60, confirm: 1}
  - name: five
    service: "null"
    pattern: trace
    trace: arrivals.jsonl
    time_scale: 0.5
artifacts: {container: x.sif}
binds: ["/a:/b", "/a:/b:ro"]
metadata: {seed: 7, notes: a, git_commit: b}
"""
SITE = """\
name: here
summary: a machine
profile: slurm
runtime: venv
paths: {results: results, metrics: metrics}
images: {where: job, job: [--mem=4G], build: ["null"], client: true}
modules: [a/1]
max_submit: 10
qos_max_submit: {default: 5}
queue_deadline_s: 100
needs: [partition, account]
partitions: {cpu: {nodes: 2, cpus: 4, mem_gb: 8}, gpu: {nodes: 2, cpus: 4, mem_gb: 8, gpus: 4, gres: "gpu:a"}}
qos: {default: 3600, long: null}
pinning: {client: "0-1", server: "2"}
network_environment: {A: b}
retention: {logs_days: 3}
carrier: dask
carrier_address: tcp://10.0.0.1:8786
lease_s: 30
idle_s: 1
"""
SCENARIOS = [path.read_text(encoding="utf-8") for path in shipped.SCENARIOS]
RECIPES = {name: (CONFIG / "services" / f"{name}.yaml").read_text(encoding="utf-8") for name in SERVICES}

many = pytest.mark.parametrize(
    "examples", [QUICK, pytest.param(WHOLE, marks=[pytest.mark.sweep, pytest.mark.slow])], ids=["few", "all"]
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that scenarios are read in, with what they name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text("scenario: base\nqos: default\n")
    (tmp_path / "arrivals.jsonl").write_text('{"at_s": 0.1}\n{"at_s": 0.2}\n')
    (tmp_path / "services").mkdir()
    return tmp_path


def refused(act: Callable[[], Any]) -> None:
    """Call it; a UserError of printable lines is a good answer too."""
    mistakes: tuple[str, ...] = ("accepted",)
    try:
        act()
    except UserError as error:
        mistakes = error.lines
    assert mistakes
    assert all(line.strip() for line in mistakes)


def planned(path: Path, services: Any = MappingProxyType(SERVICES), site: str = "local") -> None:
    found = plan(read_scenario(path, services, SITES[site]), services, SITES[site])
    if len(found.trials) < 2000:
        describe(found, services, SITES[site])
        json.dumps(encode(plan_facts(found, services, SITES[site])), allow_nan=False)


@pytest.mark.slow
@pytest.mark.covers("E-VAL")
@many
def test_whatever_a_scenario_holds_it_plans_or_says_what_is_wrong(folder: Path, examples: int, counted: Any) -> None:
    def act(case: tuple[str, str]) -> None:
        text, site = case
        (folder / "scenario.yaml").write_text(text, encoding="utf-8", errors="surrogatepass")
        refused(lambda: planned(folder / "scenario.yaml", site=site))

    cases = st.tuples(changed_files([OTHER, *SCENARIOS]), st.sampled_from(sorted(SITES)))
    fuzz(cases, act, 2 * examples, Harm(table="fuzzed scenarios", counted=counted))


@pytest.mark.slow
@pytest.mark.covers("E-VAL", "E-SVR05")
@many
def test_whatever_a_recipe_holds_it_is_read_or_says_what_is_wrong(folder: Path, examples: int, counted: Any) -> None:
    (folder / "try.yaml").write_text('scenario: try\nworkload: {service: "null"}\n')

    def act(text: str) -> None:
        (folder / "services" / "null.yaml").write_text(text, encoding="utf-8", errors="surrogatepass")
        refused(lambda: planned(folder / "try.yaml", read_services(folder / "services")))

    cases = changed_files([RECIPES[name] for name in ("null", "vllm_ray", "s3", "postgres")])
    fuzz(cases, act, examples, Harm(table="fuzzed recipes", counted=counted))


@pytest.mark.slow
@pytest.mark.covers("E-VAL")
@many
def test_whatever_a_site_holds_it_is_read_or_says_what_is_wrong(folder: Path, examples: int, counted: Any) -> None:
    (folder / "try.yaml").write_text('scenario: try\npartition: cpu\naccount: a\nworkload: {service: "null"}\n')

    def act(text: str) -> None:
        (folder / "here.yaml").write_text(text, encoding="utf-8", errors="surrogatepass")

        def read() -> None:
            site = read_site(folder / "here.yaml")
            describe(plan(read_scenario(folder / "try.yaml", SERVICES, site), SERVICES, site), SERVICES, site)

        refused(read)

    texts = [SITE, *((CONFIG / "sites" / f"{name}.yaml").read_text() for name in SITES)]
    fuzz(changed_files(texts), act, examples, Harm(table="fuzzed sites", counted=counted))


rows = st.one_of(
    odd_values,
    st.dictionaries(
        st.sampled_from(["at_s", "timestamp", "input_length", "output_length", "hash_ids", "class", "prompt_tokens"]),
        st.one_of(
            st.sampled_from(
                [0, 1, -1, 0.5, 10**400, 2**63, float("nan"), float("inf"), "1", None, True, [], {}, [1]]
            ),
            st.lists(st.integers(), max_size=3),
        ),
    ).map(json.dumps),
    st.sampled_from(
        ["TIMESTAMP,ContextTokens,GeneratedTokens", "2024-05-10 00:00:00.009930+00:00,2162,5", "[]", "1,2"]
    ),
)


@pytest.mark.covers("E-VAL")
@many
def test_whatever_a_trace_holds_it_is_read_or_says_what_is_wrong(folder: Path, examples: int, counted: Any) -> None:
    def act(case: tuple[list[str], bytes, str]) -> None:
        lines, end, service = case
        content = "\n".join(lines).encode("utf-8", "surrogatepass") + end
        (folder / "arrivals.jsonl").write_bytes(content)
        workload = {"service": service, "pattern": "trace", "trace": "arrivals.jsonl", "duration_s": 5}
        (folder / "try.yaml").write_text(json.dumps({"scenario": "try", "workload": workload}))
        refused(lambda: planned(folder / "try.yaml"))

    cases = st.tuples(st.lists(rows, max_size=5), st.binary(max_size=6), st.sampled_from(["null", "known"]))
    fuzz(cases, act, examples, Harm(table="fuzzed traces", counted=counted))


parts = st.sampled_from(
    [
        *(
            "batch",
            "concurrency",
            "rate_rps",
            "'x'",
            "true",
            "null",
            "1",
            "0",
            "1e999",
            "9" * 100,
            "-",
            "+",
            "not ",
            "(",
        ),
        *(
            ")",
            "[",
            "]",
            ",",
            " and ",
            " or ",
            " in ",
            " not in ",
            " < ",
            " <= ",
            " == ",
            " % ",
            " // ",
            " * ",
            " / ",
        ),
        *(
            "**",
            "lambda: 1",
            "x.y",
            "f()",
            "{}",
            "1 if 2 else 3",
            "{{",
            "'",
            '"',
            "\\",
            "\n",
            "é",
            "\x00",
            "1j",
            "b'x'",
        ),
        *("not " * 100, "-" * 400, "(" * 200, "[" * 90 + "]" * 90, "1" * 499),
    ]
)
values = st.dictionaries(
    st.sampled_from(["batch", "concurrency", "rate_rps"]),
    st.sampled_from([0, 1, -1, 0.5, 1e308, "text", True, None]),
    min_size=3,
)


def holds(text: str, known: dict[str, Any]) -> None:
    parsed = condition(text)
    if parsed.names <= set(known):  # other names are refused where a workload is read
        parsed.holds(known)


@pytest.mark.covers("E-VAL")
@many
def test_whatever_a_condition_or_objective_says_it_holds_or_is_refused(examples: int, counted: Any) -> None:
    def act(case: tuple[str, dict[str, Any]]) -> None:
        text, known = case
        for read in (lambda: holds(text, known), lambda: slo_parts(text)):
            with suppress(ValueError):
                read()

    cases = st.tuples(st.lists(parts, max_size=8).map("".join), values)
    fuzz(cases, act, examples, Harm(table="fuzzed conditions and objectives", counted=counted))


@pytest.mark.slow
@pytest.mark.covers("E-VAL")
@many
def test_whatever_a_mix_holds_it_is_read_or_refused(folder: Path, examples: int, counted: Any) -> None:
    def act(text: str) -> None:
        body = json.dumps({"scenario": "try", "workload": {"service": "known", "mix": "MIX"}})
        (folder / "try.yaml").write_text(body.replace('"MIX"', text), encoding="utf-8", errors="surrogatepass")
        refused(lambda: planned(folder / "try.yaml"))

        def given() -> None:
            words = ["http://127.0.0.1:1/v1/completions", "--mix", text, "--model", "m"]
            cli.main(["load", *words], standalone_mode=False)

        refused(given)

    texts = ["{chat: {weight: 3, prompt_len: 8, endpoint: chat}, search: {prompt_len: 40, gen_tokens: 6}}"]
    fuzz(changed_files(texts), act, examples // 2, Harm(table="fuzzed mixes", counted=counted))
