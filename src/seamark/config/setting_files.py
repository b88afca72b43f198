"""Files that settings name: their content is part of a trial's identity, their path is not."""

from collections.abc import Iterable
from os.path import expandvars

from seamark.config.load_profile_checks import texts_of
from seamark.config.yaml_source import Item, Mistakes
from seamark.model.digest import sha256_of
from seamark.model.scenario import Workload
from seamark.model.service import Setting
from seamark.patterns.trace_file import file_of


def file_contents(item: Item, workload: Workload, settings: Iterable[Setting], mistakes: Mistakes) -> dict[str, str]:
    """Return the SHA-256 of each file that a level of a workload names, by its path as written.

    Notes each file that cannot be read. A path whose `$NAME` is not known here is not read.
    """
    digests: dict[str, str] = {}
    for setting in settings:
        for at, text in texts_of(item, workload, setting.name) if setting.file else ():
            if "$" in expandvars(text):
                continue
            try:
                digests[text] = sha256_of(file_of(text))
            except FileNotFoundError:
                where = "Correct the path; it begins in the folder where bench is called."
                mistakes.add(at, f"no such file: {text}. {where}")
            except OSError as error:
                mistakes.add(at, f"{text}: cannot be read: {error.strerror}.")
    return digests
