"""The packages in src and their rooms: imports go one way, Snakemake stays outside, and workers stay light."""

import ast
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "seamark"
EXECUTOR = PACKAGE / "dispatch" / "slurm" / "executor.py"
"""A plugin of Snakemake's: only its process imports it."""

WORKER_MAY = {"numpy", "uvloop"}
SDK = {
    "postgres": {"psycopg2"},
    "s3": {"boto3", "botocore", "urllib3"},
    "triton": {"tritonclient", "grpc", "onnx", "onnxruntime"},
    "openai/llamacpp": {"gguf", "xllamacpp"},
    "openai/models": {"torch", "transformers", "tokenizers"},
    "rpc": {"grpc"},
    "vectors/faiss": {"faiss"},
    "vectors/pgvector": {"psycopg2"},
    "vectors/chroma_": {"chromadb"},
    "config/yaml_source": {"yaml"},
    "vectors/milvus": {"pymilvus", "milvus", "grpc", "google"},
    "seamark_evaluate/attention/": {"torch", "transformers", "tokenizers", "safetensors"},
    "seamark_evaluate/tasks/loading": {"datasets", "pyarrow"},
    "seamark_evaluate/tasks/scoring": {"rouge", "rouge_score", "jieba"},
    "seamark_pipelines/flow/before_import": {"torch", "torchao"},
    "seamark_pipelines/stages/seeded": {"PIL", "tokenizers", "torch", "transformers"},
}
"""What a driver may import beyond that, by the beginning of its path; each is in the service's lock."""

WORKER_ROOMS = {"errors", "platform", "patterns", "load", "drivers"}
WORKER_ROOMS_OF_PLUGINS = {"attention", "tasks", "drivers", "flow", "stages"}
WORKER_FILES = {
    *("config/__init__.py", "config/secrets.py", "config/yaml_source.py", "storage/redaction.py"),
    *(f"seamark_pipelines/{name}.py" for name in ("config/__init__", "config/read")),
    *(f"seamark_pipelines/model/{name}.py" for name in ("__init__", "graph", "query")),
    *("datasets/__init__.py", "datasets/neighbours.py"),
    *("dispatch/__init__.py", "dispatch/identity.py"),
    *("stats/__init__.py", "stats/histogram.py", "stats/quantiles.py"),
    *("storage/__init__.py", "storage/codec.py", "storage/documents.py", "storage/paths.py"),
}
"""What a worker needs of other rooms: secrets that settings refer to, the name of its node, the histogram of its
schedule lag, files of questions, exact neighbours."""
WORKER_MODEL = {
    "annotations",
    "dotted",
    "origin",
    "service",
    "load_profile",
    "sample",
    "failure",
    "digest",
    "scenario",
    "trial",
    "values",
    "harness",
}
LONGEST_LINES = 450
BANNED = ("Manager", "Handler", "Factory", "Base", "Mixin")
BASE_ONLY = {
    "load/workers/segments.py",
    *(f"load/coordinator/{name}.py" for name in ("client_telemetry", "coordinator", "one_load", "outcome")),
}
"""Parts of load that run in the base environment, in the parent of the workers."""


sys.path.insert(0, str(ROOT / "docs"))
layers = import_module("layers")
ROOMS = {"seamark": layers.ROOMS, **layers.ROOMS_OF_PLUGINS}
PACKAGES = sorted(path for path in (ROOT / "src").glob("seamark*/") if path.suffix != ".egg-info")
EVERY_SOURCE = [path for package in PACKAGES for _, path in layers.sources(package)]


def package_of(folder: Path, files: dict[str, str]) -> Path:
    """Write a small package with these files; return its folder."""
    package = folder / "src" / "seamark"
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    return package


def reached_from(start: Path, package: Path = PACKAGE) -> dict[str, list[str]]:
    """Return every file of ours that importing `start` loads, with the top-level imports of others that each has."""
    found: dict[str, list[str]] = {}
    ahead = [start]
    while ahead:
        path = ahead.pop()
        name = path.relative_to(package.parent).as_posix().removeprefix(f"{package.name}/")
        if name in found:
            continue
        found[name] = []
        for _, full in layers.imports(path):
            words = full.split(".")
            if not (package.parent / words[0]).is_dir():
                found[name].append(words[0])
                continue
            for depth in range(1, len(words) + 1):
                inner = package.parent.joinpath(*words[:depth])
                ahead += [each for each in (inner.with_suffix(".py"), inner / "__init__.py") if each.is_file()]
    return {
        name: roots for name, roots in found.items() if Path(name).parts[1:] != ("__init__.py",) != Path(name).parts
    }


def foreign(name: str, roots: list[str]) -> set[str]:
    """Return what a file that a worker loads imports, but may not."""
    path = name.removeprefix("drivers/")
    sdk = set().union(*(names for begin, names in SDK.items() if path.startswith(begin)))
    return {root for root in roots if root not in sys.stdlib_module_names} - WORKER_MAY - sdk


def starts() -> list[Path]:
    """Return what is imported in a service's environment: the worker, the hooks' runner, every driver."""
    workers = PACKAGE / "load" / "workers"
    return [
        workers / "worker.py",
        workers / "hooks.py",
        *sorted(path for package in PACKAGES for path in (package / "drivers").rglob("*.py")),
    ]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_a_room_imports_only_from_lower_floors(package):
    assert layers.breaches(layers.arrows(package), ROOMS[package.name]) == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_no_files_import_each_other_in_a_circle(package):
    assert layers.circles(package) == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_every_room_with_a_floor_is_there_or_is_gone_from_the_list(package):
    assert layers.rooms_in(package) == set(ROOMS[package.name]), "Add the room in docs/layers.py, or remove it there."


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_the_core_imports_no_plugin_and_a_plugin_no_other(package):
    assert layers.strangers(package) == []


def test_an_import_of_a_plugin_is_named_with_its_place(tmp_path):
    package = package_of(tmp_path, {"model/a.py": "def f():\n    from seamark_x import y\n"})
    (package.parent / "seamark_x").mkdir()
    [first, *_] = layers.strangers(package)
    assert "src/seamark/model/a.py:2" in first


def test_nothing_but_errors_lies_loose_in_the_package():
    loose = {path.name for path in PACKAGE.glob("*.py")}
    assert loose == {"__init__.py", "errors.py"}
    assert {path.name for plugin in PACKAGES[1:] for path in plugin.glob("*.py")} <= {"__init__.py", "plugin.py"}


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"model/a.py": "from seamark.cli import main\n", "cli/main.py": ""}, "'model' (floor 1)"),
        ({"model/a.py": "def f():\n    import seamark.cli\n", "cli/main.py": ""}, "src/seamark/model/a.py:2"),
        ({"load/a.py": "from seamark.report import b\n", "report/b.py": ""}, "Imports go to lower floors"),
        ({"attic/a.py": ""}, "the room 'attic' has no floor. Add it to ROOMS"),
    ],
)
def test_an_import_against_the_rule_is_named_with_its_place_or_its_remedy(tmp_path, files, says):
    [first, *_] = layers.breaches(layers.arrows(package_of(tmp_path, files)))
    assert says in first


def test_a_circle_of_files_is_named(tmp_path):
    files = {"load/a.py": "from seamark.load.b import x\n", "load/b.py": "def f():\n    import seamark.load.a\n"}
    [circle] = layers.circles(package_of(tmp_path, files))
    assert "src/seamark/load/b.py:2" in circle


def test_imports_from_lower_floors_are_allowed(tmp_path):
    files = {"planning/a.py": "from seamark.config.b import x\n", "config/b.py": ""}
    assert layers.breaches(layers.arrows(package_of(tmp_path, files))) == []


def test_the_picture_leaves_out_what_a_longer_way_implies():
    found = {"cli": {"plan": "", "model": ""}, "plan": {"model": ""}, "model": {}}
    assert layers.direct(found) == {"cli": ["plan"], "plan": ["model"], "model": []}


def test_nothing_in_src_but_its_executor_imports_snakemake():
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in EVERY_SOURCE
        for line, name in layers.imports(path)
        if name.split(".")[0].startswith("snakemake") and path != EXECUTOR
    ]
    assert found == [], (
        "Snakemake is a process to us (workflow/snakemake_cli.py); the Snakefile asks workflow/dag.py."
    )


def test_what_a_worker_loads_needs_only_what_every_service_environment_has():
    found = {
        f"{name} imports {', '.join(sorted(wrong))}"
        for start in starts()
        for name, roots in reached_from(start).items()
        if (wrong := foreign(name, roots))
    }
    assert found == set(), "Workers run beside the service's own libraries: move this import to the base environment."


def test_a_worker_loads_no_other_room_of_ours():
    found = set()
    for start in starts():
        for name in reached_from(start):
            room, _, rest = name.partition("/")
            inside = room.removesuffix(".py") in WORKER_ROOMS and name not in BASE_ONLY
            inside |= room.startswith("seamark_") and Path(rest).parts[0] in WORKER_ROOMS_OF_PLUGINS
            model = room == "model" and Path(rest).stem in WORKER_MODEL | {"__init__"}
            if not inside and not model and name not in WORKER_FILES:
                found.add(f"{start.relative_to(ROOT)} loads {name}")
    assert found == set()


def test_the_check_of_workers_sees_an_import_behind_another(tmp_path):
    files = {"__init__.py": "", "drivers/x.py": "from seamark.load import far\n", "load/far.py": "import pandas\n"}
    package = package_of(tmp_path, files)
    reached = reached_from(package / "drivers" / "x.py", package)
    assert foreign("load/far.py", reached["load/far.py"]) == {"pandas"}


def test_a_script_of_a_rule_imports_one_function_and_calls_it():
    for path in sorted((ROOT / "scripts").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        ours = [n for n in tree.body if isinstance(n, ast.ImportFrom) and (n.module or "").startswith("seamark")]
        kinds = {type(node) for node in tree.body}
        assert [len(node.names) for node in ours] == [1], path
        assert kinds <= {ast.Import, ast.ImportFrom, ast.Expr}, path


def test_a_file_has_one_noun_and_at_most_450_lines():
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in EVERY_SOURCE}
    long = {str(path.relative_to(ROOT)): length for path, length in lengths.items() if length > LONGEST_LINES}
    assert long == {}, "Split it: a file has one noun."


def test_a_module_says_what_lives_in_it_and_no_name_says_nothing():
    for path in EVERY_SOURCE:
        assert not {"utils", "util", "helpers", "common"} & set(path.with_suffix("").parts), path
        text = path.read_text(encoding="utf-8")
        said = ast.get_docstring(ast.parse(text)) or ""
        assert not text.strip() or said.splitlines()[:1] != [], f"{path.relative_to(ROOT)} says nothing"
        for name in re.findall(r"^ *class (\w+)", text, re.MULTILINE):
            assert not name.endswith(BANNED), f"{path.relative_to(ROOT)}: {name}"


def test_no_file_but_that_of_origins_asks_for_the_literal_simulated():
    """A name or label that is no question may have the word in it, not be it."""
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value == "simulated"
    }
    assert found == {"model/origin.py"}


def test_the_text_of_other_programs_is_decoded_with_replacement():
    calls = [
        (f"{path.relative_to(ROOT)}:{call.lineno}", {word.arg for word in call.keywords})
        for path in EVERY_SOURCE
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
    ]
    kept = [{"text", "stdout"}, {"text", "stderr"}, {"text", "capture_output"}]
    assert [where for where, words in calls if any(words >= each for each in kept) and "errors" not in words] == []
