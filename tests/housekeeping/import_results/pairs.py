"""Two studies that ask the same."""

from dataclasses import dataclass

from exported import Exporting


@dataclass(frozen=True)
class Pair:
    """Results that are to be brought `here`, from `there`."""

    here: Exporting
    there: Exporting

    @property
    def source(self) -> str:
        return str(self.there.root / "results")

    def trials(self) -> list[str]:
        """Return the trials that were measured there."""
        return sorted(path.parent.name for path in self.there.results.glob("*--*/load.json"))
