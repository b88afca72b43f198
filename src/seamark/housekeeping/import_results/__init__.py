"""Interface of the import of results from another folder."""

from seamark.housekeeping.import_results.fetch import fetch, forget
from seamark.housekeeping.import_results.merge import Merged, Prefer, merge, take_calibrations

__all__ = ["Merged", "Prefer", "fetch", "forget", "merge", "take_calibrations"]
