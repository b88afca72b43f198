"""What a plugin adds to the page of a scenario."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seamark.model.plugin import parts
from seamark.report.page.content import Block, Section
from seamark.report.source import Results, ShownWorkload

WorkloadBlocks = Callable[[ShownWorkload], Sequence[Block]]
"""Returns blocks of a workload's treatments; the names of its figures begin with the workload's `stem`."""


@dataclass(frozen=True, kw_only=True)
class PagePart:
    """Blocks of each workload, the first and the last of its section, and blocks of a section `title` with the anchor
    `id`. Each function runs in a process of its own; one without anything to show returns no block."""

    id: str = ""
    title: str = ""
    first_blocks: tuple[WorkloadBlocks, ...] = ()
    last_blocks: tuple[WorkloadBlocks, ...] = ()
    own_blocks: tuple[Callable[[Results], Sequence[Block]], ...] = ()

    def section(self, blocks: Sequence[Block]) -> Section | None:
        """Return the section of its own blocks; None without any."""
        return Section(id=self.id, title=self.title, blocks=tuple(blocks)) if blocks else None


def page_parts() -> tuple[PagePart, ...]:
    """Return those of all plugins."""
    return parts("page")
