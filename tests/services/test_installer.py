"""The installer of every environment: pip's settings reach uv, hashes hold under all of them, and pip stands in."""

import importlib.util
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import yaml
from made_wheels import make_wheel
from study_folder import StudyFolder

from seamark.errors import SiteError
from seamark.planning.study import SHIPPED, Study
from seamark.services.runtimes.environments import (
    COMPLETE,
    INSTALLER,
    environment_folder,
    installing,
    prepare_environment,
)

SPEC = importlib.util.spec_from_file_location("install", INSTALLER)
assert SPEC is not None
install = importlib.util.module_from_spec(SPEC)
assert SPEC.loader is not None
SPEC.loader.exec_module(install)

LISTING = """\
:env:.timeout='9'
global.extra-index-url='\\nhttps://a/simple\\nhttps://b/simple'
global.find-links='/nowhere/wheels https://c/wheels'
global.timeout='5'
install.constraint='c.txt'
global.constraint='other.txt'
download.index-url='https://not-for-installations/'
"""


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that stands for every index."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "wheels")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wheels").mkdir()
    return tmp_path / "wheels"


def prepare(folder: Path, lock: str, name: str = "tiny") -> Path:
    """Make the environment of a lock with this text."""
    (folder / "locks").mkdir(exist_ok=True)
    (folder / "locks" / f"{name}.lock").write_text(lock)
    return prepare_environment(name, folder / "locks", folder / "envs")


def modules(environment: Path) -> set[str]:
    """Return the modules in an environment."""
    return {path.stem for path in environment.glob("lib/python3*/site-packages/*.py")}


def test_a_variable_wins_over_the_command_in_the_files_of_pip_and_that_over_what_holds_for_all_commands():
    settings = install.pip_settings(LISTING, {"PIP_DEFAULT_TIMEOUT": "7", "PIP_NO_INDEX": "0", "HOME": "/"})
    assert settings["timeout"] == "7"
    assert settings["constraint"] == "c.txt"
    assert settings["no-index"] == "0"
    assert "index-url" not in settings


def test_every_index_folder_and_constraint_of_pip_reaches_uv_and_a_folder_that_is_not_there_is_left_out():
    options = install.uv_options(install.pip_settings(LISTING, {}), ["--require-hashes", "--no-deps", "--no-deps"])
    assert options == [
        *("--no-deps", "--extra-index-url", "https://a/simple", "--extra-index-url", "https://b/simple"),
        *("--find-links", "https://c/wheels", "--constraint", str(Path("c.txt").absolute())),
    ]


@pytest.mark.parametrize(
    ("settings", "wanted", "options"),
    [
        ({"no-index": "true", "index-url": "https://a"}, [], ["--no-index"]),
        ({"index-url": "https://a"}, ["--index-url=https://own"], ["--index-url=https://own"]),
        ({"index-url": "file:///a"}, ["--require-hashes"], ["--require-hashes", "--index-url", "file:///a"]),
        ({"extra-index-url": "file:///nowhere/simple"}, [], []),
        ({"trusted-host": "a:80 b"}, [], ["--allow-insecure-host", "a:80", "--allow-insecure-host", "b"]),
        ({"only-binary": "a,b"}, [], ["--only-binary", "a", "--only-binary", "b"]),
    ],
)
def test_a_setting_of_pip_is_an_option_of_uv(settings: dict[str, str], wanted: list[str], options: list[str]):
    assert install.uv_options(settings, wanted) == options


def test_certificate_proxy_and_times_of_pip_reach_uv_and_what_is_said_to_uv_itself_wins(tmp_path: Path):
    settings = {"cert": "/a.pem", "proxy": "http://p:1", "timeout": "8", "retries": "2"}
    told = install.uv_variables(settings, {"UV_HTTP_RETRIES": "5", "https_proxy": "http://old", "PATH": "/bin"})
    assert {told[name] for name in ("http_proxy", "https_proxy", "HTTPS_PROXY", "ALL_PROXY")} == {"http://p:1"}
    assert (told["SSL_CERT_FILE"], told["UV_HTTP_TIMEOUT"], told["UV_HTTP_RETRIES"]) == ("/a.pem", "8", "5")
    assert told["PATH"] == "/bin"
    bundled = install.uv_variables({}, {"REQUESTS_CA_BUNDLE": str(tmp_path)})
    assert bundled["SSL_CERT_DIR"] == str(tmp_path), "a folder of certificates"
    assert "SSL_CERT_FILE" not in bundled


@pytest.mark.slow
def test_wheels_in_a_folder_are_enough_and_environments_share_files_that_are_compiled(
    wheels: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    lock = make_wheel(wheels, needs="what-nobody-has")
    first, second = prepare(tmp_path, lock), prepare(tmp_path, lock + "# another\n")
    (module,) = first.glob("lib/python3*/site-packages/tinypkg.py")
    (twin,) = second.glob("lib/python3*/site-packages/tinypkg.py")
    assert module.samefile(twin)
    assert list(module.parent.glob("__pycache__/tinypkg.*.pyc"))
    assert "tinypkg==1.0" in capfd.readouterr().err, "what the installer says is shown"


@pytest.mark.slow
def test_a_constraint_without_hashes_breaks_no_installation_and_one_that_the_lock_breaks_is_named(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lock = make_wheel(wheels)
    (tmp_path / "c.txt").write_text("tinypkg<2\nelsewhere\n")
    monkeypatch.setenv("PIP_CONSTRAINT", "c.txt")
    assert "tinypkg" in modules(prepare(tmp_path, lock))
    (tmp_path / "c.txt").write_text("tinypkg<1\n")
    with pytest.raises(SiteError) as caught:
        prepare(tmp_path, lock + "# again\n")
    assert "tinypkg<1" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("constraint", ["", "tinypkg<2\n"])
def test_a_wheel_with_another_hash_is_never_installed(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, constraint: str
):
    lock = make_wheel(wheels)
    good, bad = lock.rpartition(":")[2].strip(), "0" * 64
    if constraint:
        (tmp_path / "c.txt").write_text(constraint)
        monkeypatch.setenv("PIP_CONSTRAINT", "c.txt")
    with pytest.raises(SiteError) as caught:
        prepare(tmp_path, lock.replace(good, bad))
    said = str(caught.value)
    folder = environment_folder("tiny", tmp_path / "locks", tmp_path / "envs")
    assert all(part in said for part in ("environment 'tiny'", "tinypkg==1.0", good, bad, f"{folder}.log"))
    assert not modules(folder)
    assert not (folder / COMPLETE).exists()


@pytest.mark.slow
def test_a_lock_with_an_option_that_pip_alone_knows_is_installed_by_pip(
    wheels: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    lock = make_wheel(wheels)
    assert "tinypkg" in modules(prepare(tmp_path, "# pip: --prefer-binary\n" + lock))
    assert "pip installs instead" in capfd.readouterr().err


@pytest.mark.sweep
def test_where_uv_has_no_wheel_pip_installs_the_same(wheels: Path, tmp_path: Path):
    lock = tmp_path / "tiny.lock"
    lock.write_text(make_wheel(wheels))
    for name in ("bare", "target"):
        venv.create(tmp_path / name, with_pip=False, symlinks=True)
    python = tmp_path / "target" / "bin" / "python"
    words = [tmp_path / "bare" / "bin" / "python", INSTALLER, python]
    done = subprocess.run(
        [*words, "--require-hashes", "--no-deps", "--compile-bytecode", "-r", lock],
        env={**os.environ, "UV_CACHE_DIR": str(tmp_path / "cache" / "uv")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "pip installs instead" in done.stderr
    assert subprocess.run([python, "-c", "import tinypkg"], check=False).returncode == 0


def test_environments_are_installed_by_name_and_number(tmp_path: Path):
    root = StudyFolder.new(tmp_path / "study").root
    site = root / "config/sites/local.yaml"
    paths = {"environments": str(tmp_path / "envs")}
    site.write_text(yaml.safe_dump(yaml.safe_load(site.read_text()) | {"paths": paths}))
    study = Study.at(root, scenario="config/scenarios/try.yaml", site="local")
    names = ["faiss", "postgres", "s3"]
    faiss, _, s3 = (environment_folder(name, study.locks, study.environments) for name in names)
    assert installing(study, names) == "installing faiss, 1 of 3"
    s3.mkdir(parents=True)
    assert installing(study, names) == "installing s3, 1 of 3"
    (s3 / COMPLETE).touch()
    faiss.mkdir()
    assert installing(study, names) == "installing faiss, 2 of 3"


def test_the_pinned_uv_is_what_this_environment_has_or_what_pip_would_install():
    version = install.pinned_version()
    beside = Path(sys.executable).with_name("uv")
    if beside.exists():
        assert install.find_uv([], Path("unused")) == beside
    assert f"uv=={version} \\" in (SHIPPED / "envs" / "uv.lock").read_text()
