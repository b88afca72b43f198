"""Where and with what a number was measured: machine, software, git, batch job. Reads, never changes."""

from seamark.telemetry.provenance.machine import machine
from seamark.telemetry.provenance.moment import moment, now
from seamark.telemetry.provenance.nodes import Nodes, after, look
from seamark.telemetry.provenance.software import git, software

__all__ = ["Nodes", "after", "git", "look", "machine", "moment", "now", "software"]
