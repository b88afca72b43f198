"""Where and with what a number was measured: machine, software, git, batch job. Reads, never changes."""

from seamark.provenance.machine import hostname, machine
from seamark.provenance.moment import moment, now
from seamark.provenance.nodes import Nodes, after, look
from seamark.provenance.slurm import slurm
from seamark.provenance.software import git, software

__all__ = ["Nodes", "after", "git", "hostname", "look", "machine", "moment", "now", "slurm", "software"]
