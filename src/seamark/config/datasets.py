"""Data sets in workloads: their place, their digest, and the sizes that follow from their vectors."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os.path import expandvars

from seamark.config.load_profile_checks import texts_of
from seamark.config.yaml_source import Item, Mistakes
from seamark.datasets.files import Seeded, digest_of, files_of, kind_of
from seamark.errors import UserError
from seamark.model.scenario import Levels, Workload
from seamark.model.service import Service, Setting, sound_services
from seamark.patterns.trace_file import file_of

DATASET = "dataset"
SIZES = ("vectors", "dimensions", "queries")
"""Settings of a vector store that its data set decides."""


def with_dataset(
    item: Item, written: Mapping[str, object], known: Mapping[str, Setting], artifact: Item | None
) -> Item:
    """Return a workload with `artifacts.dataset`, if its service takes a data set and none is written for it."""
    setting = known.get(DATASET)
    if artifact is None or DATASET in written or setting is None or not setting.dataset:
        return item
    return replace(item, value={**item.value, DATASET: artifact})


def artifact_of(tree: Item) -> Item | None:
    """Return `artifacts.dataset` of a scenario, None where it has no text."""
    at = tree.at(("artifacts", DATASET))
    named = at.path.endswith(f".{DATASET}") and isinstance(at.value, str) and at.value.strip()
    return at if named else None


def check_used(
    artifact: Item | None, workloads: Sequence[Workload], services: Mapping[str, Service], mistakes: Mistakes
) -> None:
    """Note an `artifacts.dataset` that no workload takes."""
    loads = [load for workload in workloads for load in workload.loads.values()]
    if artifact is None or any(artifact.value in load.levels.get(DATASET, ()) for load in loads):
        return
    recipes = sound_services(services).values()
    takers = [service.name for service in recipes if any(setting.dataset for setting in service.settings)]
    taken = f"Remove it, or measure one that does: {', '.join(takers) or 'none'}."
    mistakes.add(artifact, f"no service of this scenario takes it: other data would be measured. {taken}", "conflict")


def digest_at(at: Item, dataset: str, setting: Setting, mistakes: Mistakes) -> str | None:
    """Return the SHA-256 of a data set; None after noting why there is none, and for `$NAME` that is not there: it
    may be on the machine of the run, which is refused without it."""
    try:
        if not dataset.strip():
            raise ValueError("the path is empty. Write one, or remove the line.")
        if (has := kind_of(dataset)) != setting.dataset:
            raise ValueError(f"{dataset} has {has}, and this service takes {setting.dataset}.")
        return digest_of(dataset)
    except FileNotFoundError:
        if "$" not in dataset:
            text = f"no such file: {dataset}. Correct the path; it begins in the folder where bench is called."
            mistakes.add(at, text, "no_such_file")
    except OSError as error:
        mistakes.add(at, f"{dataset}: cannot be read: {error.strerror}.", "unreadable")
    except ValueError as error:
        mistakes.add(at, str(error), "wrong_form")
    return None


def size_levels(
    item: Item, workload: Workload, known: Mapping[str, Setting], mistakes: Mistakes
) -> dict[str, Levels]:
    """Return the levels of SIZES by the vectors of a workload's data sets, after noting levels that contradict."""
    setting = known.get(DATASET)
    if setting is None or setting.dataset != "vectors":
        return {}
    sizes: dict[tuple[int, ...], None] = {}
    for at, dataset in texts_of(item, workload, DATASET):
        if "$" in expandvars(dataset):
            continue
        try:
            sizes[_sizes_of(dataset)] = None
        except UserError as error:
            mistakes.note(*error.mistakes)
        except (OSError, ValueError):  # which `digest_at` notes
            continue
        if len(sizes) > 1:
            mistakes.add(at, "has other sizes than the data set before it. Write a workload for each.", "conflict")
            return {}
    for size in sizes:
        for name, value in zip(SIZES, size, strict=True):
            if {*workload.every_level(name, value)} != {value}:
                text = f"the data set decides this: {value}. Remove the line."
                mistakes.add(item.value.get(name, item), text, "conflict")
        return {name: (value,) for name, value in zip(SIZES, size, strict=True)}
    return {}


def _sizes_of(dataset: str) -> tuple[int, ...]:
    if seeded := Seeded.of(dataset):
        return seeded.rows, seeded.dimensions, seeded.queries
    if kind_of(dataset) != "vectors":
        raise ValueError
    from seamark.datasets.vectors import shape_of  # imports numpy

    return shape_of(files_of(file_of(dataset)))
