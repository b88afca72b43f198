"""bench init: a new study folder with everything a run reads."""

import shutil
from pathlib import Path
from shlex import quote

import click

from seamark.errors import UserError
from seamark.study import SHIPPED

OWN = ("Snakefile", "profiles", "config")
IGNORED = "results/\nreports/\n.seamark/\n.snakemake/\n"


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path))
def command(folder: Path) -> None:
    """Make FOLDER a study: Snakefile, profiles, recipes, sites and example scenarios, all yours to change.

    \b
    Example:
      bench init my-study && cd my-study && bench submit -c config/scenarios/quickstart.yaml
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: exists and is not an empty folder. Name a new one; nothing was written.")
    for name in OWN:
        source = SHIPPED / name
        if source.is_dir():
            shutil.copytree(source, folder / name)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / name)
    (folder / "meluxina").symlink_to("profiles/meluxina")
    (folder / ".gitignore").write_text(IGNORED)
    click.echo(
        f"{folder}: a new study. Next: cd {quote(str(folder))} && bench submit -c config/scenarios/quickstart.yaml"
    )
