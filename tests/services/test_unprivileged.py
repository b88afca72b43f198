"""What a server that refuses to be root can do when root starts it: nothing but what any user can."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from server_bench import Bench, left_of
from shipped import SERVICES

from seamark.model.service import Health, Server
from seamark.model.site import Paths
from seamark.platform.privilege import give_to
from seamark.services.supervisor import deployment as servers

pytestmark = [
    pytest.mark.services,
    pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: needs root"),
]
ROOT = Path(__file__).resolve().parents[2]
CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapAmb")


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.fixture
def secret() -> Iterator[Path]:
    """A file that only root may read, in a folder that all may enter."""
    path = Path("/var/tmp") / f"seamark-test-{os.getpid()}"
    path.write_text("only root reads this\n")
    path.chmod(0o600)
    try:
        yield path
    finally:
        path.unlink()


@pytest.fixture
def postgres(bench: Bench) -> Bench:
    """PostgreSQL by its shipped recipe, with its data below a folder that only root may enter."""
    cache = os.environ.get("SEAMARK_CACHE")
    environments = f"{cache}/envs" if cache else Paths().environments
    (bench.root / "envs").symlink_to(ROOT / "envs")
    bench.root.chmod(0o700)
    paths = replace(bench.site.paths, environments=environments)
    service = SERVICES["postgres"]
    return replace(bench.with_site(paths=paths), service=service)


def serve(bench: Bench) -> dict[str, Any]:
    settings = {one.name: one.default for one in bench.service.settings if one.role == "deployment"}
    answer = bench.serve(**settings)
    assert answer["status"] == "ok", answer
    return answer


@pytest.mark.covers("E-NFR02")
def test_a_superuser_of_postgresql_that_root_started_cannot_read_what_only_root_reads(postgres: Bench, secret: Path):
    answer = serve(postgres)
    status = status_of(answer["server_pid"])
    assert {name: int(status[name], 16) for name in CAPABILITIES} == dict.fromkeys(CAPABILITIES, 0)
    assert status["NoNewPrivs"] == "1"
    assert status["Uid"].split() == ["65534"] * 4
    assert status["Groups"] == ""
    password = postgres.data() / "password"
    shown = password.stat()
    assert (shown.st_uid, stat.S_IMODE(shown.st_mode)) == (0, 0o600)
    assert stat.S_IMODE(postgres.data().stat().st_mode) == 0o711
    for wanted in (secret, password, Path("/etc/shadow")):
        asked = run_sql(postgres, answer, f"select pg_read_file('{wanted}')")
        assert "Permission denied" in asked.stderr, asked
        assert "only root" not in asked.stdout
    copied = run_sql(postgres, answer, f"copy (select 1) to program 'cat {secret} > {postgres.data()}/stolen'")
    assert "Permission denied" in copied.stderr + (postgres.folder().server_log.read_text())
    assert run_sql(postgres, answer, "select 6 * 7").stdout.strip() == "42"


def run_sql(bench: Bench, answer: dict[str, Any], statement: str) -> "subprocess.CompletedProcess[str]":
    """Run a statement as the server's superuser, with psycopg2 of its environment."""
    program = (
        "import sys, psycopg2\n"
        "port, password, statement = sys.argv[1:]\n"
        "link = psycopg2.connect(host='127.0.0.1', port=port, user='bench', password=password, dbname='postgres')\n"
        "link.autocommit = True\n"
        "cursor = link.cursor()\n"
        "cursor.execute(statement)\n"
        "print(*cursor.fetchone() if cursor.description else ())\n"
    )
    python = f"{answer['environment']}/bin/python"
    password = (bench.data() / "password").read_text()
    words = [python, "-c", program, str(answer["ports"]["main"]), password, statement]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def with_secret(bench: Bench) -> Bench:
    """Return a bench whose server refuses to be root, and whose set-up writes a secret and another file."""
    server = Server(
        command=("{python}", "-m", "http.server", "{ports[main]}", "--bind", "{host}"),
        setup=(("sh", "-c", 'umask 077; for name in secret file; do id -u > "$1/$name"; done', "try", "{data}"),),
        health=Health(timeout_s=30, interval_s=0.05),
        refuses_root=True,
        secrets=("secret",),
    )
    return bench.with_service(server=server)


@pytest.mark.parametrize("closed", [True, False], ids=["below a closed folder", "where all may enter"])
def test_what_set_up_wrote_for_the_load_alone_is_ours_and_all_else_the_servers(
    bench: Bench, tmp_path: Path, closed: bool
):
    scratch = tmp_path / "scratch" if closed else Path("/var/tmp") / f"seamark-test-{os.getpid()}-scratch"
    bench = with_secret(bench).with_site(paths=replace(bench.site.paths, scratch=str(scratch)))
    bench.root.chmod(0o700)
    answer = bench.serve()
    try:
        assert answer["status"] == "ok", answer
        assert answer["command"][1:3] == ["-m", "http.server"], "the recipe's words and none of ours"
        data = Path(answer["data"])
        owners = {path.name: (path.stat().st_uid, path.read_text()) for path in data.iterdir()}
        owners.pop("staged")  # the driver's own, of its hook
        assert owners == {"secret": (0, "65534\n"), "file": (65534, "65534\n")}
        status = status_of(answer["server_pid"])
        assert {name: int(status[name], 16) for name in CAPABILITIES} == dict.fromkeys(CAPABILITIES, 0)
        seen = Path(f"/proc/{answer['server_pid']}/root{tmp_path}")
        assert [path.name for path in seen.iterdir()] == ["scratch"] if closed else seen.stat().st_mode & 0o77 == 0
        servers.stop(bench.folder())
        assert left_of(bench) == []
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def test_a_file_of_ours_that_has_another_name_elsewhere_is_not_given_away(tmp_path: Path):
    ours, folder = tmp_path / "ours", tmp_path / "data"
    folder.mkdir()
    ours.touch(mode=0o600)
    (folder / "name").hardlink_to(ours)
    (folder / "link").symlink_to(ours)
    (folder / "secret").symlink_to(ours)
    with pytest.raises(OSError, match="symbolic links"):
        give_to("nobody", folder, but=("secret",))
    (folder / "secret").unlink()
    give_to("nobody", folder, but=("secret",))
    assert (ours.stat().st_uid, ours.stat().st_mode & 0o777) == (0, 0o600)
    assert (folder / "link").lstat().st_uid == 65534


WITHOUT_MOUNTS = """
import sys
from seamark.platform.privilege import as_user
from seamark.errors import SiteError
from pathlib import Path
try:
    print(*as_user("nobody", [Path(sys.argv[1])]))
except SiteError as error:
    print("refused:", error)
"""


def test_root_that_may_not_mount_is_told_which_folder_closes_the_way_and_what_helps(tmp_path: Path):
    tmp_path.chmod(0o700)
    (tmp_path / "data").mkdir()
    words = [sys.executable, "-c", WITHOUT_MOUNTS, str(tmp_path / "data")]
    limited = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", *words]
    said = subprocess.run(limited, capture_output=True, text=True, check=True).stdout
    assert said.startswith("refused: This server refuses to run as root and is run as 'nobody', who may not enter /")
    assert "start it as an ordinary user" in said
    assert not subprocess.run(words, capture_output=True, text=True, check=True).stdout.startswith("refused")


def test_a_program_that_cannot_be_read_or_executed_is_named_with_a_remedy(bench: Bench, tmp_path: Path):
    for name, says in (("no-such-program", "'nobody' cannot execute no-such-program: No such file"),):
        server = replace(with_secret(bench).service.server, command=(name,))
        answer = bench.with_service(server=server).serve()
        assert answer["status"] == "failed"
        assert any(says in line for line in answer["log_tail"]), answer
