"""The nodes that the trials of a comparison ran on, as their meta.json tell, and whether they are alike."""

from typing import Any

from seamark.analysis.checks.nodes import Seen, add_machine, machines_of, nodes_differ
from seamark.storage.paths import TrialFolder, read_json

Document = dict[str, Any]


class ComparedNodes:
    """What is known of the machines of each group of treatments that are compared. Holds facts, not documents."""

    def __init__(self) -> None:
        self._seen: dict[str, Seen] = {}

    def add(self, group: str, folder: TrialFolder) -> None:
        """Note the nodes of a good trial; of one without a readable meta.json nothing is known."""
        try:
            meta = read_json(folder.meta)
        except (OSError, ValueError):
            return
        for node, machine in machines_of(meta):
            add_machine(self._seen.setdefault(group, {}), node, machine)

    def reasons(self, group: str, trials: int) -> list[Document]:
        """Return what stands against comparing the treatments of a group, as summary.json has reasons."""
        reason = nodes_differ(self._seen.get(group, {}))
        return [] if reason is None else [{**reason.to_json(), "count": trials}]
