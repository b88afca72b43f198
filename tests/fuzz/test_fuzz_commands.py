"""Whatever stands on the command line or in the environment, bench ends with a code of its own and in time."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from command_lines import GOOD, TEXTS, command_lines, odd_values
from harm import Harm, fuzz
from hypothesis import strategies as st
from in_process import run

from seamark.cli.load import command as load_command
from seamark.services.ephemeral_server import ephemeral_server

ROOT = Path(__file__).resolve().parents[2]
QUICK, WHOLE = 200, 3300
CODES = (0, 1, 2, 3)

many = pytest.mark.parametrize(
    "examples", [QUICK, pytest.param(WHOLE, marks=[pytest.mark.sweep, pytest.mark.slow])], ids=["few", "all"]
)


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small study: two recipes, a site, good scenarios and wrong ones."""
    for kind, names in (("services", ("null", "known")), ("sites", ("local",))):
        (tmp_path / "config" / kind).mkdir(parents=True)
        for name in names:
            shutil.copy(ROOT / "config" / kind / f"{name}.yaml", tmp_path / "config" / kind)
    (tmp_path / "config" / "sites" / "broken.yaml").write_text("name: [")
    (tmp_path / "good.yaml").write_text('scenario: try\nworkload: {service: "null", concurrency: [1, 2]}\n')
    (tmp_path / "wrong.yaml").write_text('scenario: try\nworkload: {service: "nul"}\n')
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00" * 9)
    (tmp_path / "deep.yaml").write_text("[" * 5000)
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "arrivals.jsonl").write_text('{"at_s": 0.01}\n{"at_s": 0.02}\n')
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RSYNC_RSH", "/bin/false")
    return tmp_path


def require_words(words: list[str]) -> None:
    """Fail where bench ends with no code of its own, or refuses without a word."""
    code, said = run(words)
    assert code in CODES, f"ended with {code!r}: {said}"
    assert "Traceback" not in said
    assert code != 2 or said.strip(), "refused without a word"


@pytest.mark.slow
@pytest.mark.covers("E-CLI02", "E-VAL")
@many
def test_whatever_a_command_line_says_bench_ends_with_a_code_of_its_own(
    study: Path, examples: int, counted: Any
) -> None:
    harm = Harm(table="fuzzed command lines", counted=counted)
    fuzz(command_lines(), require_words, examples, harm)


@st.composite
def loads(draw: st.DrawFn) -> list[str]:
    """Options of a load of a tenth of a second, mostly ones that it can take."""
    path = draw(st.sampled_from(["/", "/v1/completions", "/v1/chat/completions"]))
    line = [path, "--duration", "0.1", "--model", "m", "--timeout", "1"]
    known = {parameter.name: parameter for parameter in load_command.params}
    for name in draw(st.lists(st.sampled_from(sorted(GOOD)), max_size=5)):
        if name in known and name not in ("duration", "timeout"):
            value = (
                draw(st.sampled_from(GOOD[name]))
                if draw(st.integers(0, 5))
                else draw(odd_values("load", known[name]))
            )
            line += [known[name].opts[0], value]
    return line


@pytest.mark.services
@pytest.mark.covers("E-CLI02")
@pytest.mark.parametrize("examples", [3, pytest.param(60, marks=pytest.mark.sweep)], ids=["few", "all"])
def test_whatever_load_is_asked_for_it_is_refused_or_ends(study: Path, examples: int, counted: Any) -> None:
    with ephemeral_server("seamark.testservers.reference", "--ttft-ms", 1, "--gap-ms", 1) as port:
        fuzz(
            loads(),
            lambda line: require_words(["load", f"http://127.0.0.1:{port}{line[0]}", *line[1:]]),
            examples,
            Harm(table="fuzzed loads", counted=counted),
        )


NAMES = ("SEAMARK_TURN", "SEAMARK_LOOK_S", "SEAMARK_PYTHON", "SEAMARK_RETRY", "SEAMARK_KEEPER", "SEAMARK_CHECKOUT")
OTHERS = (
    "SLURM_JOB_ID",
    "SLURM_NNODES",
    "SLURMD_NODENAME",
    "COLUMNS",
    "LINES",
    "NO_COLOR",
    "TERM",
    "HOME",
    "USER",
    "LANG",
)


@pytest.mark.slow
@pytest.mark.covers("E-CLI02", "E-VAL")
@many
def test_whatever_the_environment_says_bench_ends_with_a_code_of_its_own(
    study: Path, examples: int, counted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = st.sampled_from([text for text in TEXTS if len(text) < 1000])

    def act(case: tuple[dict[str, str], str]) -> None:
        with monkeypatch.context() as changed:
            for name, value in case[0].items():
                changed.setenv(name, value)
            require_words([case[1], "-c", "good.yaml"])

    variables = st.dictionaries(st.sampled_from([*NAMES, *OTHERS]), texts, max_size=4)
    cases = st.tuples(variables, st.sampled_from(["plan", "status", "report", "collect"]))
    fuzz(cases, act, examples // 10, Harm(table="fuzzed environments", counted=counted))


@pytest.mark.covers("E-CLI02")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--duration", "inf"], "'--duration': inf is no finite number"),
        (["--duration", "nan"], "'--duration': nan"),
        (["--pattern", "poisson", "--rate", "1e8"], "--rate 100000000.0: 100000000 is too large: at most 1000000"),
        (["--set", "concurency=5"], "--set concurency: no setting of this load. Did you mean 'concurrency'?"),
        (["--set", "concurrency=many"], "--set concurrency=many: expected a whole number."),
        (["--set", "x=["], "--set x: no setting of this load."),
        (["--set", "temperature=0.5"], "--set temperature: no setting of this load."),
        (["--header", "name: λ"], "--header"),
        (["--header", "λ: name"], "--header"),
    ],
)
def test_a_value_of_bench_load_that_cannot_be_is_refused_by_its_option(
    study: Path, words: list[str], says: str
) -> None:
    code, said = run(["load", "http://127.0.0.1:1/", *words])
    assert (code, len(said.strip().splitlines())) == (2, 1), said
    assert says in said


@pytest.mark.slow
def test_a_setting_of_the_openai_api_is_read_by_its_type_and_limits(study: Path) -> None:
    address = "http://127.0.0.1:1/v1/completions"
    assert "temperature=hot: expected a number" in run(["load", address, "--set", "temperature=hot"])[1]
    assert "Did you mean 'temperature'?" in run(["load", address, "--set", "temperatur=1"])[1]
    assert "nothing listens there" in run(["load", address, "--set", "temperature=0.5", "--model", "m"])[1]
