"""Files become nouns: what is read, what is merged, and what is said of files that are damaged."""

from pathlib import Path

import pytest
from messages import TOY
from shipped import SERVICES

from seamark.config.read import read_scenario, read_services, read_site
from seamark.errors import UserError
from seamark.model.scenario import Slo
from seamark.model.service import Server

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def mistakes_of_scenario(path: Path) -> tuple[str, ...]:
    with pytest.raises(UserError) as caught:
        read_scenario(path, SERVICES)
    return caught.value.lines


def mistakes_of_recipe(folder: Path, text: str) -> tuple[str, ...]:
    written(folder, "services/toy.yaml", text)
    with pytest.raises(UserError) as caught:
        read_services(folder / "services")
    return caught.value.lines


@pytest.mark.covers("E-VAL", "E-INT01")
def test_all_mistakes_of_a_scenario_are_reported_at_once(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "wrong.yaml",
        "scenario: a/b\nrepetition: 3\nresources: {mem_gb: 0}\n"
        "workloads:\n  - service: fileio\n    concurency: 4\n    block_bytes: x\n  - service: postgras\n",
    )
    mistakes = mistakes_of_scenario(path)
    assert [line.split(": ")[0] + ": " + line.split(": ")[1] for line in mistakes] == [
        "wrong.yaml:2: repetition",
        "wrong.yaml:1: scenario",
        "wrong.yaml:3: resources.mem_gb",
        "wrong.yaml:6: workloads[0].concurency",
        "wrong.yaml:7: workloads[0].block_bytes",
        "wrong.yaml:8: workloads[1].service",
    ]


@pytest.mark.covers("E-CFG", "E-FR02", "E-MR01", "E-MR02", "E-MR04", "E-MR05")
def test_the_sample_scenario_is_read_as_it_is_written() -> None:
    scenario = read_scenario(ROOT / "config" / "scenarios" / "llm_vllm_baseline.yaml", SERVICES)
    assert (scenario.name, scenario.partition, scenario.account, scenario.repetitions) == (
        "llm_vllm_baseline",
        "gpu",
        "pXXXXX",
        3,
    )
    assert (scenario.resources.gpus, scenario.resources.cpus_per_task, scenario.resources.mem_gb) == (
        (1,),
        (8,),
        (32,),
    )
    assert scenario.workloads[0].levels == {
        "model": ("mistral-7b-instruct",),
        "prompt_len": (128, 512),
        "gen_tokens": (128,),
        "batch": (1, 4, 8),
        "concurrency": (1, 8, 32),
        "dataset": ("$WORK/data/prompts.jsonl",),
    }
    assert scenario.artifacts.container == "$WORK/containers/vllm.sif"
    assert scenario.binds == ("$WORK/data:/data", "$WORK/results:/results")


def test_objectives_are_read_with_their_limits(tmp_path: Path) -> None:
    text = "scenario: a\nworkload:\n  service: fileio\n  slos: [latency_p99_s <= 0.2, recall_at_10 >= 0.95]\n"
    scenario = read_scenario(written(tmp_path, "a.yaml", text), SERVICES)
    assert scenario.workloads[0].slos == (
        Slo(metric="latency_p99_s", op="<=", limit=0.2),
        Slo(metric="recall_at_10", op=">=", limit=0.95),
    )


def test_defaults_reach_only_workloads_that_know_them_and_do_not_say_otherwise(tmp_path: Path) -> None:
    text = (
        "scenario: a\ndefaults: {object_bytes: 4096, duration_s: 2}\n"
        "workloads:\n  - service: s3\n  - {service: fileio, duration_s: 3}\n"
    )
    first, second = read_scenario(written(tmp_path, "a.yaml", text), SERVICES).workloads
    assert first.levels == {"object_bytes": (4096,), "duration_s": (2.0,)}
    assert second.levels == {"duration_s": (3.0,)}


def test_a_default_without_effect_in_a_pattern_is_left_out(tmp_path: Path) -> None:
    text = (
        "scenario: a\ndefaults: {rate_rps: 100}\n"
        "workloads:\n  - {service: s3, pattern: poisson}\n  - {service: fileio}\n"
    )
    first, second = read_scenario(written(tmp_path, "a.yaml", text), SERVICES).workloads
    assert first.levels["rate_rps"] == (100.0,)
    assert "rate_rps" not in second.levels


def test_a_scenario_is_merged_over_those_it_extends(tmp_path: Path) -> None:
    written(tmp_path, "shared/base.yaml", "scenario: base\nrepetitions: 7\nresources: {gpus: 2, mem_gb: 8}\n")
    written(tmp_path, "shared/load.yaml", "scenario: load\nworkload: {service: fileio, concurrency: [1, 2]}\n")
    text = "scenario: mine\nextends: [shared/base.yaml, shared/load.yaml]\nresources: {mem_gb: 16}\n"
    scenario = read_scenario(written(tmp_path, "mine.yaml", text), SERVICES)
    assert (scenario.name, scenario.repetitions) == ("mine", 7)
    assert (scenario.resources.gpus, scenario.resources.mem_gb) == ((2,), (16,))
    assert scenario.workloads[0].levels == {"concurrency": (1, 2)}


def test_several_workloads_take_the_place_of_an_extended_one(tmp_path: Path) -> None:
    written(tmp_path, "base.yaml", "scenario: base\nworkload: {service: fileio}\n")
    text = "scenario: mine\nextends: base.yaml\nworkloads: [{service: s3}, {service: postgres}]\n"
    scenario = read_scenario(written(tmp_path, "mine.yaml", text), SERVICES)
    assert [workload.service for workload in scenario.workloads] == ["s3", "postgres"]


def test_a_mistake_in_an_extended_file_names_that_file(tmp_path: Path) -> None:
    written(tmp_path, "base.yaml", "scenario: base\nworkload:\n  service: fileio\n  acess: random\n")
    path = written(tmp_path, "mine.yaml", "scenario: mine\nextends: base.yaml\n")
    assert mistakes_of_scenario(path) == ("base.yaml:4: workload.acess: unknown key. Did you mean 'access'?",)


def test_files_that_extend_each_other_are_named_in_a_chain(tmp_path: Path) -> None:
    written(tmp_path, "a.yaml", "scenario: a\nextends: b.yaml\n")
    written(tmp_path, "b.yaml", "scenario: b\nextends: c.yaml\n")
    written(tmp_path, "c.yaml", "scenario: c\nextends: a.yaml\n")
    (mistake,) = mistakes_of_scenario(tmp_path / "a.yaml")
    assert mistake.startswith("c.yaml:2: extends: ")
    assert "a.yaml -> b.yaml -> c.yaml -> a.yaml" in mistake


def test_a_file_that_two_others_extend_is_no_circle(tmp_path: Path) -> None:
    written(tmp_path, "root.yaml", "scenario: r\nworkload: {service: fileio}\n")
    written(tmp_path, "a.yaml", "scenario: a\nextends: root.yaml\n")
    written(tmp_path, "b.yaml", "scenario: b\nextends: root.yaml\n")
    path = written(tmp_path, "mine.yaml", "scenario: mine\nextends: [a.yaml, b.yaml]\n")
    assert read_scenario(path, SERVICES).workloads[0].service == "fileio"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"scenario: a\nworkload: \xff\xfe\n", "file.yaml:2: not UTF-8 text"),
        (b"\x00scenario: a\n", "file.yaml:1: not valid YAML"),
        (b"a: " + b"[" * 400_000, "file.yaml:1: lists or mappings are nested too deep"),
        (b"# " + b"x" * 5_000_000, "is too large for a configuration"),
    ],
)
def test_a_damaged_file_is_named_with_its_reason(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "file.yaml").write_bytes(content)
    (mistake,) = mistakes_of_scenario(tmp_path / "file.yaml")
    assert says in mistake


def test_a_file_with_a_byte_order_mark_and_crlf_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbfscenario: a\r\nworkload:\r\n  service: fileio\r\n")
    assert read_scenario(tmp_path / "a.yaml", SERVICES).name == "a"


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    written(tmp_path, "quickstart.yaml", "scenario: a\n")
    assert mistakes_of_scenario(tmp_path / "quikstart.yaml") == (
        "quikstart.yaml: no such file. Did you mean 'quickstart.yaml'?",
    )


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    assert mistakes_of_scenario(tmp_path / "folder.yaml") == ("folder.yaml: is a folder; name a YAML file in it.",)


def test_aliases_that_multiply_are_refused_before_they_fill_memory(tmp_path: Path) -> None:
    lines = ["scenario: a", "x0: &x0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10)}]" for i in range(1, 9)]
    mistakes = mistakes_of_scenario(written(tmp_path, "bomb.yaml", "\n".join(lines) + "\n"))
    assert mistakes == ("bomb.yaml:3: nested aliases: '*x0' is inside of '&x1'. Write them out.",)


@pytest.mark.covers("E-SVR05")
def test_a_recipe_is_read_with_its_defaults(tmp_path: Path) -> None:
    written(tmp_path, "services/toy.yaml", TOY)
    toy = read_services(tmp_path / "services")["toy"]
    size = toy.setting("size")
    assert size is not None
    assert (size.name, size.default, type(size.default), size.minimum) == ("size", 4.0, float, 1.0)
    assert (toy.server, toy.environment, toy.notes) == (None, None, "")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("name: toy", "name: toys", "toy.yaml:1: name: 'toys' is not the name of its file. Write 'toy'"),
        ("component: storage", "component: storrage", "toy.yaml:2: component: 'storrage' is none of storage,"),
        ('version: "1"', "version: 1", "toy.yaml:4: version: expected text, but YAML reads 1 as a whole number."),
        ("driver: toys.drivers:Toy", "driver: toys.drivers", "toy.yaml:6: driver: 'toys.drivers' is not of the form"),
        ("workers: wire\n", "", "toy.yaml:1: the key 'workers' is missing."),
        ("    default: 4", "    default: 0", "toy.yaml:12: settings.size.default: 0 is too small: at least 1 MB."),
        ("    default: 4", "    default: big", "toy.yaml:12: settings.size.default: 'big' is not of type float."),
        ("  size:", "  concurrency:", "toy.yaml:9: settings.concurrency: 'concurrency' has a meaning of its own"),
        ("  size:", "  gpus:", "toy.yaml:9: settings.gpus: 'gpus' has a meaning of its own"),
        (
            "    role: workload",
            "    roll: workload",
            "toy.yaml:11: settings.size.roll: unknown key.",
        ),
        ("workers: wire", "workers: wire\nserver: {command: ['{dta}']}", "'{dta}' is not known. Known: ports,"),
        ("workers: wire", "workers: wire\nserver: {command: ['{ports[http]}']}", "'{ports[http]}': no such port."),
        ("workers: wire", "workers: wire\nserver: {command: ['{settings[sise]}']}", "no such setting"),
        (
            "workers: wire",
            "workers: wire\nserver: {command: ['{addresses[haed]}'], parts: [{name: head, command: [x]}]}",
            "no such part. Parts: server, head. Did you mean 'head'?",
        ),
        (
            "workers: wire",
            "workers: wire\nserver: {command: ['{ports[w]}'], "
            "parts: [{name: w, command: [x], nodes: each, ports: [w]}]}",
            "'{ports[w]}': no such port.",
        ),
        (
            "workers: wire",
            "workers: wire\nserver: {command: [x], parts: [{name: server, command: [x]}]}",
            "'server' is the name of something else.",
        ),
        (
            "workers: wire",
            "workers: wire\nserver: {command: [x], parts: [{name: w, command: [x], ports: [main]}]}",
            "'main' is a port of something else.",
        ),
        (
            "workers: wire",
            "workers: wire\nserver: {command: [x], parts: [{name: w, command: [x], nodes: al}]}",
            "'al' is none of server, others, each.",
        ),
        (
            "workers: wire",
            "workers: wire\nserver: {command: ['{urls[w]}'], parts: [{name: w, command: [x]}]}",
            "'{urls[w]}': no part with `count` and `ports`.",
        ),
        (
            "workers: wire",
            "workers: wire\nserver: {command: ['--x={urls[w]}'], "
            "parts: [{name: w, command: [x], ports: [w], count: size}]}",
            "'{urls[w]}' stands for several words",
        ),
        (
            "workers: wire",
            "workers: wire\nserver: {command: [x], parts: [{name: w, command: [x], count: siez}]}",
            "server.parts[0].count: 'siez' is no setting of this service. Did you mean 'size'?",
        ),
        (
            "workers: wire",
            "workers: wire\nserver: {command: [x], parts: [{name: w, command: [x], nodes: each, count: size}]}",
            "server.parts[0].nodes:",
        ),
        (
            "workers: wire",
            "workers: wire\nserver: {command: [x], "
            "parts: [{name: w, command: [x], ports: [w], count: size, counters: {replica_request: x}}]}",
            "server.parts[0].counters.replica_request: ",
        ),
        (
            "workers: wire",
            "workers: wire\nserver: {command: [x], reset_caches: {path: /x, setting: size}}",
            "toy.yaml:8: server.reset_caches.setting: ",
        ),
        (
            "workers: wire",
            "workers: wire\nserver: {command: [x], parts: [{name: w, command: [x], reset_caches: {path: /x}}]}",
            "toy.yaml:8: server.parts[0].reset_caches: ",
        ),
        ("workers: wire", "workers: wire\nserver: {command: ['{switches[sise]}']}", "no such setting"),
        ("workers: wire", "workers: wire\nserver: {command: ['{switches[size]}']}", "only a setting of type bool"),
        ("workers: wire", "workers: wire\nserver: {command: ['{']}", "A brace that is meant as one is written twice"),
        (
            "workers: wire",
            "workers: wire\nserver: {command: [x], health: {port: http}}",
            "the port 'http' is none",
        ),
        ("workers: wire", "workers: wire\nserver: {command: [x], metrics_port: web}", "is none of the ports main."),
        (
            "workers: wire",
            "workers: wire\ngpu_memory: {model: siez, max_model_len: size, gpu_memory_utilization: size}",
            "toy.yaml:8: gpu_memory.model: 'siez' is no setting of this service. Did you mean 'size'?",
        ),
        (
            "workers: wire",
            "workers: wire\ngpu_memory: {model: size, max_model_len: size, gpu_memory_utilization: size}",
            "toy.yaml:8: gpu_memory.max_model_len: 'size' must be a setting of type int and role deployment.",
        ),
        ("workers: wire", "workers: wire\ngpu_memory: {model: size}", "the key 'max_model_len' is missing."),
        (
            "workers: wire",
            "workers: wire\nreplicas: siez",
            "toy.yaml:8: replicas: 'siez' is no setting of this service. Did you mean 'size'?",
        ),
        (
            "workers: wire",
            "workers: wire\nreplicas: size",
            "toy.yaml:8: replicas: 'size' must be a setting of type int and role deployment.",
        ),
        (
            "workers: wire",
            "workers: wire\ngpu_memory: {model: a, max_model_len: b, gpu_memory_utilization: c, tokens_line: '(a'}",
            "toy.yaml:8: gpu_memory.tokens_line: is no regular expression: missing )",
        ),
        (
            "workers: wire",
            "workers: wire\ngpu_memory: {model: a, max_model_len: b, gpu_memory_utilization: c, tokens_line: a}",
            "toy.yaml:8: gpu_memory.tokens_line: needs one group, the number of tokens, and has 0.",
        ),
        ("workers: wire", "workers: wire\ntimeout_s: 60", "toy.yaml:8: timeout_s: is for finite loads."),
        (
            "workers: wire",
            "workers: wire\nload: finite\ntimeout_s: 0",
            "toy.yaml:9: timeout_s: 0 is outside of 0.001 to 604800 s.",
        ),
    ],
)
def test_a_wrong_recipe_is_named_with_its_line(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in TOY
    mistakes = mistakes_of_recipe(tmp_path, TOY.replace(old, new))
    assert any(says in mistake for mistake in mistakes), mistakes


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            "[sh, -c, \"cat '{data}/x'\"]",
            "toy.yaml:8: server.command[2]: the placeholder '{data}' stands in a program",
        ),
        ("[/bin/bash, -o, pipefail, -ec, 'ls {data} | wc']", 'bash, -c, \'... "$1" ...\', NAME, "{data}"'),
        ("[env, LC_ALL=C, sh, -c, -e, 'echo {settings[size]} && exec \"$@\"', toy]", "'{settings[size]}' stands in"),
        ("['{python}', -u, -c, 'open(\"{data}\")']", "python, -c, '... sys.argv[1] ...', \"{data}\""),
        ("[python3.11, -Xdev, -c, 'open(\"{data}\")']", "a program that python reads"),
        ("[perl, -we, 'open {data}']", "$ARGV[0]"),
    ],
)
def test_a_value_in_the_text_of_a_program_is_refused_with_how_to_pass_it(
    tmp_path: Path, words: str, says: str
) -> None:
    for server in (f"{{command: {words}}}", f"{{command: [x], parts: [{{name: w, command: {words}}}]}}"):
        mistakes = mistakes_of_recipe(tmp_path, TOY.replace("wire\n", f"wire\nserver: {server}\n"))
        place = says.replace("server.command", "server.parts[0].command") if "parts" in server else says
        assert [place in mistake for mistake in mistakes] == [True], mistakes


@pytest.mark.parametrize(
    "words",
    [
        "[sh, -c, 'cat \"$1/x\" ${{HOME}}', toy, '{data}']",
        "[sh, '{data}/start.sh', -c, '{data}']",
        "[gunicorn, -c, '{data}/config']",
        "[bash, -o, pipefail, -c, 'exec \"$@\"', bash, toy, '{data}']",
        "['{python}', '{package}/outside.py', -c, '{data}']",
    ],
)
def test_a_value_that_is_an_argument_of_a_program_is_accepted(tmp_path: Path, words: str) -> None:
    written(tmp_path, "services/toy.yaml", TOY.replace("wire\n", f"wire\nserver: {{command: {words}}}\n"))
    assert "toy" in read_services(tmp_path / "services")


def test_mistakes_of_all_recipes_are_reported_at_once(tmp_path: Path) -> None:
    written(tmp_path, "services/other.yaml", "name: other\n")
    mistakes = mistakes_of_recipe(tmp_path, TOY.replace("component: storage", "component: x"))
    assert {mistake.split(":")[0] for mistake in mistakes} == {"services/other.yaml", "services/toy.yaml"}


def test_an_inner_port_that_is_no_port_is_named(tmp_path: Path) -> None:
    server = "server: {command: [toy], ports: [main, inner], inner_ports: [iner]}\n"
    (mistake,) = mistakes_of_recipe(tmp_path, TOY + server)
    assert "'iner' is none of the ports. Name it in `ports` too." in mistake


def test_a_missing_folder_of_recipes_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no-such: no such folder"):
        read_services(tmp_path / "no-such")


@pytest.mark.parametrize("name", ["fileio", "postgres", "s3", "faiss", "milvus", "triton", "vllm", "null"])
def test_every_shipped_recipe_is_read(name: str) -> None:
    assert SERVICES[name].name == name
    assert isinstance(SERVICES[name].server, Server) or name in ("fileio", "faiss")


@pytest.mark.covers("E-MR01")
def test_meluxina_is_as_its_documentation_says() -> None:
    site = read_site(ROOT / "config" / "sites" / "meluxina.yaml")
    gpu = site.partitions["gpu"]
    assert (gpu.nodes, gpu.gpus, gpu.cpus) == (200, 4, 128)
    assert site.partitions["cpu"].nodes == 573
    assert (site.qos["default"], site.qos["test"], site.qos["long"]) == (48 * 3600, 1800, 144 * 3600)
    assert site.whole_nodes
    assert site.runtime == "apptainer"
    assert set(site.needs) >= {"partition", "account"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: here\n", "the key 'summary' is missing."),
        ("name: here\nsummary: x\nruntime: docker\n", "here.yaml:3: runtime: 'docker' is none of venv,"),
        ("name: here\nsummary: x\nruntime: kubernetes\n", "'kubernetes' is none of venv, apptainer, external."),
        (
            "name: here\nsummary: x\nneeds: [acount]\n",
            "here.yaml:3: needs[0]: 'acount' is none of partition,",
        ),
        (
            "name: here\nsummary: x\npartitions: {p: {nodes: 0, cpus: 1, mem_gb: 1}}\n",
            "nodes: 0 is too small. Give 1 or more.",
        ),
        ("name: here\nsummary: x\nlease_s: 0\n", "here.yaml:3: lease_s: 0 is too small. Give more than 0 s."),
        ("name: here\nsummary: x\nidle_s: -1\n", "here.yaml:3: idle_s: -1 is too small. Give 0 s or more."),
        (
            "name: here\nsummary: x\npinning: atuo\n",
            "here.yaml:3: pinning: 'atuo' is none of auto, none. Did you mean",
        ),
        ("name: here\nsummary: x\npinning: {clients: '1'}\n", "pinning.clients: unknown key. Did you mean 'client'?"),
        ("name: here\nsummary: x\npinning: {client: '1;2'}\n", "here.yaml:3: pinning.client: '1;2' names no CPUs"),
        ("name: here\nsummary: x\npinning: {client: '1-2', server: '0-1'}\n", "load and server would share CPU 1."),
        (
            "name: here\nsummary: x\npartitions: {p: {nodes: 1, cpus: 1, mem_gb: 1, gpu_memory_gb: 0}}\n",
            "here.yaml:3: partitions.p.gpu_memory_gb: 0 is outside of 1 to 10000 GB",
        ),
        (
            "name: here\nsummary: x\ngpu_memory_gb: 40\npartitions: {p: {nodes: 1, cpus: 1, mem_gb: 1}}\n",
            "here.yaml:3: gpu_memory_gb: belongs to each partition",
        ),
        ("name: here\nsummary: x\ngpu_memory_gb: 40 GB\n", "gpu_memory_gb: expected a number"),
        ("name: here\nsummary: x\npaths: {result: x}\n", "paths.result: unknown key. Did you mean 'results'?"),
    ],
)
def test_a_wrong_site_is_named_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        read_site(written(tmp_path, "here.yaml", text))
    assert any(says in mistake for mistake in caught.value.lines), caught.value.lines


def test_what_a_site_lacks_is_reported_with_the_mistakes_of_the_scenario(tmp_path: Path) -> None:
    meluxina = read_site(ROOT / "config" / "sites" / "meluxina.yaml")
    path = written(tmp_path, "a.yaml", "scenario: a\nworkload: {service: fileo}\n")
    with pytest.raises(UserError) as caught:
        read_scenario(path, SERVICES, lambda named: meluxina if named is None else pytest.fail("no site is named"))
    assert len(caught.value.lines) == 3
    assert "unknown service 'fileo'" in caught.value.lines[0]
    assert "partition: missing" in caught.value.lines[1]
    assert "account: missing" in caught.value.lines[2]
