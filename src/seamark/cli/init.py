"""bench init: creates a study folder with all files of a run, and a site from the machine's Slurm configuration."""

import re
import shutil
import time
from pathlib import Path
from shlex import quote

import click

from seamark.errors import UserError
from seamark.model.plugin import study_folders
from seamark.planning.study import SHIPPED

OWN = ("Snakefile", "profiles", "config")
IGNORED = "results/\nreports/\n.seamark/\n.snakemake/\n"
SITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option("--site", metavar="NAME", help="Write a site of that name, from Slurm here.")
@click.option("--force", is_flag=True, help="With --site: overwrite an existing file.")
def command(folder: Path | None, site: str | None, force: bool) -> None:
    """Make FOLDER a study: Snakefile, profiles, recipes, sites and example scenarios, for you to edit.

    With --site, on a login node, it also writes a site from Slurm's partitions, QoS, limits and accounts, and from
    the modules; without FOLDER, into the study you are in.

    \b
    Examples:
      bench init my-study && cd my-study && bench submit -c config/scenarios/quickstart.yaml
      bench init --site slurm
    """
    if folder is None and site is None:
        raise UserError("bench init: FOLDER is missing. Name a new folder, or a site of this study with --site.")
    if site is not None and not SITE_NAME.fullmatch(site):
        raise UserError(f"--site {site}: a name is letters, digits, '.', '_' and '-', such as 'slurm'.")
    if folder is not None:
        _new_study(folder)
    if site is not None:
        _new_site(folder or Path.cwd(), site, force)


def _new_study(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: exists and is not an empty folder. Name a new one; nothing was written.")
    for name in OWN:
        _copy(SHIPPED / name, folder / name)
    for source in study_folders():
        _copy(source, folder)
    (folder / "meluxina").symlink_to("profiles/meluxina")
    (folder / ".gitignore").write_text(IGNORED)
    click.echo(
        f"{folder}: a new study. Next: cd {quote(str(folder))} && bench submit -c config/scenarios/quickstart.yaml"
    )


def _copy(source: Path, target: Path) -> None:
    """Copy a file or folder with the permissions of the user's umask, not those of the package's files."""
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        for child in source.iterdir():
            _copy(child, target / child.name)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def _new_site(root: Path, name: str, force: bool) -> None:
    from seamark.config.read import read_site
    from seamark.dispatch.slurm.site_facts import query_site, site_facts, site_text
    from seamark.storage.documents import write_text

    sites = root / "config" / "sites"
    if not sites.is_dir():
        raise UserError(f"{root}: not a study, it has no config/sites. Make one: `bench init FOLDER --site {name}`.")
    path = sites / f"{name}.yaml"
    if path.exists() and not force:
        raise UserError(f"{path}: is there already. Choose another name, or write it anew with --force.")
    known = site_facts(query_site())
    write_text(path, site_text(name, known, time.strftime("%Y-%m-%d")))
    read_site(path)
    partitions = ", ".join(partition.name for partition in known.partitions)
    account = known.accounts[0] if known.accounts else "ACCOUNT"
    click.echo(f"{path}: partitions {partitions}; {len(known.qos)} QoS. Read it, and correct what is wrong.")
    click.echo(
        f"Next: `account: {account}` and a partition in a scenario, then bench plan -c SCENARIO --site {quote(name)}"
    )
