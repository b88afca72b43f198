"""Provenance of a measurement: node, software, git checkout, batch job. Read-only."""

from seamark.telemetry.provenance.machine import machine, moment, now
from seamark.telemetry.provenance.nodes import Nodes, after, survey
from seamark.telemetry.provenance.software import git, software

__all__ = ["Nodes", "after", "git", "machine", "moment", "now", "software", "survey"]
