"""bench data: data sets in the form that drivers read: made, listed, checked."""

from pathlib import Path

import click

from seamark.cli.options import json_option, site_option
from seamark.cli.output import print_json
from seamark.errors import UserError, did_you_mean
from seamark.model.results.trial_meta import DatasetRecord
from seamark.planning.study import site_of
from seamark.storage.paths import expanded


@click.group("data")
def command() -> None:
    """Make, list and check data sets.

    They lie in `paths.data` of the site, each in a folder named by its content, made once and shared by all studies.

    \b
    Examples:
      bench data build data/prompts.jsonl
      bench data list
      bench data verify
    """


@command.command("build")
@click.argument("datasets", metavar="DATASET...", nargs=-1, required=True)
@site_option
@json_option
def build(datasets: tuple[str, ...], site: str, as_json: bool) -> None:
    """Read data sets, check them, and keep them in the form that drivers read, as a run does for its own.

    DATASET is what `dataset` of a scenario can be: a file or folder of prompts (JSONL, JSON, Parquet, Arrow) or of
    vectors (hdf5, fvecs, bvecs, npy, with ivecs), or `seeded:vectors:rows=N,dimensions=N,queries=N,seed=N`.

    \b
    Examples:
      bench data build data/prompts.jsonl
      bench data build seeded:vectors:rows=100000,dimensions=128,queries=1000
    """
    from seamark.datasets.prepare import prepared

    _show([prepared(dataset, _root(site)) for dataset in datasets], as_json)


@command.command("list")
@site_option
@json_option
def listing(site: str, as_json: bool) -> None:
    """List the data sets that are there.

    \b
    Examples:
      bench data list
      bench data list --json | jq '.datasets[].id'
    """
    from seamark.datasets.prepare import records_in

    _show([(folder, record or DatasetRecord()) for folder, record in records_in(_root(site))], as_json)


@command.command("verify")
@click.argument("names", metavar="[ID]...", nargs=-1)
@site_option
@json_option
def verify(names: tuple[str, ...], site: str, as_json: bool) -> int:
    """Compare the files of data sets with their SHA-256. Exit code 1 if one is damaged.

    \b
    Examples:
      bench data verify
      bench data verify vectors-1938f0140da5961f2d423d98.1
    """
    from seamark.datasets.prepare import damage_of, records_in

    there = {folder.name: (folder, record) for folder, record in records_in(_root(site))}
    for name in names:
        if name not in there:
            known = did_you_mean(name, there) or f" Known: {', '.join(there) or 'none'}."
            raise UserError(f"bench data verify {name}: no data set of that id.{known}")
    damaged = {name: damage_of(*there[name]) for name in names or there}
    if as_json:
        print_json(datasets=[{"id": name, "damaged": damage} for name, damage in damaged.items()])
    for name, damage in damaged.items() if not as_json else ():
        remedy = f"{damage} is damaged. Remove {there[name][0]}: it is made again."
        click.echo(f"{name}: {'as it was made' if damage is None else remedy}")
    return 1 if any(damaged.values()) else 0


def _root(site: str) -> Path:
    return expanded(site_of(Path.cwd(), site).paths.data)


def _show(sets: list[tuple[Path, DatasetRecord]], as_json: bool) -> None:
    if as_json:
        print_json(datasets=[{"id": folder.name, **vars(record)} for folder, record in sets])
    for folder, record in sets if not as_json else ():
        licence = f", {record.licence}" if record.licence else ""
        click.echo(f"{folder.name}: {record.rows} {record.kind} of {record.name}{licence}")
