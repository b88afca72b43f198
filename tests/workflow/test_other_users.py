"""One scenario and several users: the same trials, each other's results, and no harm to what is another's."""

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from study_folder import BENCH

from seamark.errors import UserError
from seamark.planning.study import Study
from seamark.storage.codec import encode

ROOT = Path(__file__).resolve().parents[2]
FIRST, SECOND = "daemon", "nobody"
GROUP = 777
SCENARIO = "config/scenarios/try.yaml"
NULL = {"component": "null", "service": "null", "concurrency": [1, 2], "duration_s": 0.25, "warmup_s": 0}

two_users = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="becomes two users: needs root, and setpriv"
)


@dataclass(frozen=True)
class Person:
    """A user of this machine with a home, an account and a study of their own, in a group with others.

    Reading is free to them wherever the interpreter lies, writing is not.
    """

    name: str
    home: Path
    umask: int = 0o002

    @classmethod
    def new(cls, name: str, home: Path, **more: Any) -> "Person":
        home.mkdir()
        os.chown(home, pwd.getpwnam(name).pw_uid, GROUP)
        home.chmod(0o2775)
        return cls(name=name, home=home, **more)

    @property
    def study(self) -> Path:
        return self.home / "study"

    def _call(self, *words: str) -> dict[str, Any]:
        uid = pwd.getpwnam(self.name).pw_uid
        become = ["setpriv", f"--reuid={uid}", f"--regid={GROUP}", "--clear-groups"]
        become += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        own = {"HOME": str(self.home), "USER": self.name, "LOGNAME": self.name, "WORK": str(self.home / "work")}
        env = os.environ | own | {"PROJECT": f"p-{self.name}"}
        env.pop("XDG_CACHE_HOME", None)  # a folder of the user who runs the tests
        return {"args": [*become, *words], "env": env, "umask": self.umask}

    def bench(self, *words: str, at: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """Run `bench WORDS` in their own study, or in that at another place."""
        call = self._call(*BENCH, *words)
        return subprocess.run(**call, cwd=at or self.study, capture_output=True, text=True, timeout=120, check=False)

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        """Start `bench WORDS` in their own study and leave it running."""
        return subprocess.Popen(
            **self._call(*BENCH, *words), cwd=self.study, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def copy(self, source: Path, target: Path) -> None:
        """Copy a folder, as they may read it, to one of theirs."""
        subprocess.run(**self._call("cp", "-r", str(source), str(target)), check=True)

    def init(self, **workload: Any) -> None:
        """Make their study, with a scenario of the null service."""
        made = self.bench("init", str(self.study), at=self.home)
        assert made.returncode == 0, made.stderr
        document = {"scenario": "try", "repetitions": 1, "workload": NULL | workload}
        self.ask(yaml.safe_dump(document))

    def ask(self, scenario: str) -> None:
        """Write their scenario."""
        path = self.study / SCENARIO
        path.write_text(scenario)
        os.chown(path, pwd.getpwnam(self.name).pw_uid, GROUP)
        path.chmod(0o666 & ~self.umask)


def planned(root: Path, site: Mapping[str, Any], **environment: str) -> dict[str, Any]:
    """Return the plan of one scenario file for a user with this site and environment."""
    shutil.copytree(ROOT / "config", root / "config")
    (root / "config/sites/mine.yaml").write_text(yaml.safe_dump({"name": "mine", "summary": "a Slurm"} | dict(site)))
    scenario = yaml.safe_load((ROOT / "config/scenarios/llm_vllm_baseline.yaml").read_text())
    (root / SCENARIO).write_text(yaml.safe_dump(scenario | {"account": "$PROJECT"}))
    with pytest.MonkeyPatch.context() as patched:
        for name, value in environment.items():
            patched.setenv(name, value)
        study = Study.at(root, scenario=SCENARIO, site="mine")
        return encode(study.plan) | {
            "source": SCENARIO,
            "results": str(study.results),
            "metrics": str(study.metrics),
        }


@pytest.mark.slow
@pytest.mark.covers("E-NFR06")
def test_a_scenario_is_the_same_trials_for_another_user_with_another_account_and_other_paths(tmp_path: Path) -> None:
    site = {"profile": "slurm", "partitions": {"gpu": {"nodes": 2, "cpus": 64, "mem_gb": 256, "gpus": 4}}}
    of_anna = site | {"paths": {"results": "$WORK/results", "metrics": "$WORK/metrics"}}
    of_ben = of_anna | {"paths": {"results": "/scratch/ben"}, "lease_s": 60.0}
    anna = planned(tmp_path / "anna", of_anna, WORK="/project/p1/anna", PROJECT="p1")
    ben = planned(tmp_path / "ben", of_ben, WORK="/project/p2/ben", PROJECT="p2")
    assert (anna["account"], anna["results"]) == ("p1", "/project/p1/anna/results")
    assert (ben["account"], ben["results"]) == ("p2", "/scratch/ben")
    assert anna["metrics"] == "/project/p1/anna/metrics"
    names = ("id", "trial_id", "config_hash", "seed", "block", "position", "settings", "changed")
    assert [[t[name] for name in names] for t in anna["trials"]] == [
        [t[name] for name in names] for t in ben["trials"]
    ]
    assert len(anna["trials"]) == 54
    differing = {key for key in anna if anna[key] != ben[key]}
    assert differing == {"account", "results", "metrics"}


@pytest.mark.covers("E-NFR06")
def test_an_account_that_the_environment_lacks_is_a_mistake_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"try\.yaml:1: account: PROJECT is not set. Set it \(export PROJECT="):
        planned(tmp_path / "anna", {}, WORK="/project/p1")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Person:
    person = Person.new(FIRST, tmp_path_factory.mktemp("users") / "first")
    person.init()
    done = person.bench("submit", "-c", SCENARIO)
    assert done.returncode == 0, done.stderr
    return person


@pytest.fixture
def second(tmp_path: Path) -> Person:
    return Person.new(SECOND, tmp_path / "second")


@pytest.mark.slow
@pytest.mark.covers("E-NFR06", "E-VAL")
def test_a_variable_that_is_not_set_is_named_with_every_path_of_it_and_no_folder_is_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORK", raising=False)
    study = Study.at(ROOT, scenario="config/scenarios/llm_vllm_baseline.yaml", site="meluxina")
    with pytest.raises(UserError) as refused:
        study.require_variables()
    [line] = refused.value.lines
    assert line.startswith("$WORK is not set, but used: paths.scratch of site 'meluxina', ")
    for place in (
        "paths.containers of site",
        "artifacts.container of config/scenarios/llm_vllm_baseline.yaml",
        "binds of",
    ):
        assert place in line
    assert line.endswith("`export WORK=/a/folder/of/yours` first.")
    words = ["submit", "-c", "config/scenarios/llm_vllm_baseline.yaml", "--site", "meluxina"]
    done = subprocess.run([*BENCH, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"{line}\n")
    monkeypatch.setenv("WORK", str(tmp_path))
    study.require_variables()


@pytest.mark.sweep
@two_users
@pytest.mark.e2e
@pytest.mark.covers("E-NFR06", "E-SEC")
def test_results_are_open_to_whom_the_umask_opens_them(first: Person) -> None:
    made = [path for path in first.study.rglob("*") if not path.is_symlink()]
    assert len(made) > 80
    assert [path for path in made if path.stat().st_mode & 0o060 != 0o060] == []
    assert {path.stat().st_gid for path in made} == {GROUP}


@pytest.mark.sweep
@two_users
@pytest.mark.e2e
@pytest.mark.covers("E-NFR06")
def test_what_one_user_measured_counts_for_another_who_asks_the_same(first: Person, second: Person) -> None:
    second.init()
    second.copy(first.study / "results", second.study / "results")
    again = second.bench("submit", "-c", SCENARIO)
    assert "all 2 trials are there" in again.stdout, again.stderr
    assert again.returncode == 0, again.stderr
    logs = [path.read_text() for path in second.study.glob("results/try/*/log.jsonl")]
    assert [log.count('"status": "ok"') for log in logs] == [1, 1], "nothing was measured again"


@two_users
@pytest.mark.e2e
@pytest.mark.covers("E-NFR06", "E-VAL")
@pytest.mark.parametrize(
    "verb", ["submit", *(pytest.param(verb, marks=pytest.mark.sweep) for verb in ("report", "retry", "collect"))]
)
def test_a_study_that_is_closed_to_a_user_is_named_with_its_owner_and_a_remedy(
    first: Person, second: Person, verb: str
) -> None:
    results = first.study / "results/try"
    plan, aside = results / "plan.json", first.study / "plan.aside"
    if verb != "report":
        plan.rename(aside)
    before = sorted((path, path.stat().st_mtime_ns) for path in results.rglob("*"))
    trials = [path.name for path in results.glob("*--r1")]
    for folder in (first.study, *(path for path in first.study.rglob("*"))):
        if not folder.is_symlink():
            folder.chmod(folder.stat().st_mode & ~0o020)
    try:
        words = (verb, "-c", SCENARIO, *(trials[:1] if verb == "retry" else ()))
        refused = second.bench(*words, at=first.study)
        seen = second.bench("plan", "-c", SCENARIO, at=first.study)
    finally:
        for folder in (first.study, *first.study.rglob("*")):
            if not folder.is_symlink():
                folder.chmod(folder.stat().st_mode | 0o020)
    assert (refused.returncode, "Traceback" in refused.stderr) == (2, False), refused.stderr
    assert f"it is {FIRST}'s, and you may not write there." in refused.stderr
    assert "bench init FOLDER" in refused.stderr
    assert sorted((path, path.stat().st_mtime_ns) for path in results.rglob("*")) == before, "nothing was changed"
    assert (seen.returncode, "2 trials" in seen.stdout) == (0, True), seen.stderr
    if verb != "report":
        assert f"plan.json was not written; {results} is {FIRST}'s" in seen.stderr
        aside.rename(plan)


@pytest.mark.sweep
@two_users
@pytest.mark.e2e
@pytest.mark.covers("E-NFR06", "E-NFR04")
def test_in_a_shared_study_a_second_user_waits_for_the_first_and_then_goes_on(first: Person, second: Person) -> None:
    path = first.study / SCENARIO
    path.write_text(path.read_text().replace("0.25", "3.0"))
    with first.start("submit", "-c", SCENARIO) as run:
        wait_for_load(first.study)
        refused = second.bench("submit", "-c", SCENARIO, at=first.study)
        assert (refused.returncode, "another run is at work here" in refused.stderr) == (2, True), refused.stderr
        assert f"of {FIRST})" in refused.stderr
        kept = second.bench("stop", at=first.study)
        assert (kept.returncode, f"is {FIRST}'s" in kept.stderr) == (2, True), kept.stderr
        assert run.wait(timeout=100) == 0, "and the first run is not harmed"
    path.write_text(path.read_text().replace("- 2\n", "- 2\n  - 3\n").replace("3.0", "0.25"))
    on = second.bench("submit", "-c", SCENARIO, at=first.study)
    assert (on.returncode, "1 of 3 trials to measure" in on.stdout) == (0, True), on.stdout + on.stderr


def wait_for_load(study: Path) -> None:
    """Wait until a load of the study is under way."""
    limit_s = time.monotonic() + 60
    while not list((study / "results/try").glob("*/.parts/*")):
        assert time.monotonic() < limit_s
        time.sleep(0.1)
