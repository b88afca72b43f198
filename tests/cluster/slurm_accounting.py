"""Accounting of a Slurm for tests: MariaDB on a socket in the cluster's folder, and slurmdbd before it."""

import getpass
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from slurm_packages import accounting_program, libraries, plugins, unpacked, unpacked_accounting

ACCOUNT = "p200000"
QOS = {
    "default": "MaxWall=02:00:00 MaxSubmitJobsPerUser=100",
    "short": "MaxWall=00:30:00 MaxJobsPerUser=2 MaxSubmitJobsPerUser=3",
    "test": "MaxWall=00:30:00 MaxJobsPerUser=1 MaxSubmitJobsPerUser=1 Priority=100",
}
BOOTSTRAP = ("mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql")
CONF = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={user}
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
{plugins}
"""
Start = Callable[[list[str], str, dict[str, str]], Path]


def conf_lines(folder: Path, port: int) -> str:
    """Return what slurm.conf says of accounting: jobs need an association, and limits hold."""
    return (
        "AccountingStorageType=accounting_storage/slurmdbd\n"
        "AccountingStorageHost=localhost\n"
        f"AccountingStoragePort={port}\n"
        f"AccountingStoragePass={folder}/munge/socket\n"
        "AccountingStorageTRES=gres/gpu\n"
        "AccountingStorageEnforce=associations,limits,qos\n"
        "JobAcctGatherType=jobacct_gather/linux\n"
    )


def start_database(folder: Path, start: Start, until: Callable[[Callable[[], object], Path], None]) -> None:
    """Make the database and run its server on a socket that only this user reaches."""
    data, sockets = folder / "mariadb", folder / "mariadb-socket"
    data.mkdir(mode=0o700)
    sockets.mkdir(mode=0o700)
    options = [accounting_program("mariadbd"), "--no-defaults", f"--datadir={data}", *_database_options()]
    subprocess.run(
        [*options, "--bootstrap"],
        input=_bootstrap(),
        text=True,
        check=True,
        capture_output=True,
        env=_environment({}),
    )
    unix = ["--skip-networking", "--skip-grant-tables", f"--socket={sockets / 's'}", "--innodb-lock-wait-timeout=900"]
    log = start([*options, *unix, "--innodb-flush-log-at-trx-commit=0"], "mariadbd", _environment({}))
    until((sockets / "s").exists, log)


def start_slurmdbd(folder: Path, port: int, told: dict[str, str], start: Start) -> Path:
    """Run slurmdbd and return its log; it is ready when sacctmgr has an answer."""
    root, base = unpacked_accounting(), unpacked()
    folders = ":".join(str(plugins(each)) for each in (base, root) if each)
    conf = folder / "slurmdbd.conf"
    where = f"PluginDir={folders}" if root else ""
    conf.write_text(CONF.format(folder=folder, port=port, user=getpass.getuser(), plugins=where))
    conf.chmod(0o600)
    environment = _environment(told) | {"MYSQL_UNIX_PORT": str(folder / "mariadb-socket" / "s")}
    return start([accounting_program("slurmdbd"), "-D"], "slurmdbd", environment)


def add_associations(sacctmgr: Callable[..., str]) -> None:
    """Tell the database of a cluster, an account with this user, and qualities of service with limits."""
    sacctmgr("add", "cluster", "test")
    for name, limits in QOS.items():
        sacctmgr("add", "qos", name, *limits.split())
    sacctmgr("add", "account", ACCOUNT, "cluster=test", "Description=tests", "Organization=tests")
    user = getpass.getuser()
    sacctmgr("add", "user", user, f"account={ACCOUNT}", f"defaultaccount={ACCOUNT}")
    allowed = ["set", f"qos=normal,{','.join(QOS)}", "defaultqos=default"]
    sacctmgr("modify", "user", user, "where", f"account={ACCOUNT}", *allowed)


def _database_options() -> list[str]:
    root = unpacked_accounting()
    base = Path(root or "/") / "usr"
    return [
        f"--user={getpass.getuser()}",
        f"--basedir={base}",
        f"--lc-messages-dir={base / 'share' / 'mysql' / 'english'}",
        "--innodb-log-file-size=8M",
        "--innodb-buffer-pool-size=64M",
    ]


def _bootstrap() -> str:
    scripts = Path(unpacked_accounting() or "/") / "usr" / "share" / "mysql"
    texts = ["create database mysql;\nuse mysql;\n", *((scripts / name).read_text() for name in BOOTSTRAP)]
    return "".join([*texts, "create database slurm_acct_db;\n"])


def _environment(told: dict[str, str]) -> dict[str, str]:
    root = unpacked_accounting()
    found = [str(libraries(root))] if root else []
    if own := told.get("LD_LIBRARY_PATH"):
        found.append(own)
    return {**os.environ, **told, "LD_LIBRARY_PATH": ":".join(found)}
