"""Batch job of a persistent server: serves until the server ends or the job's time is over.

Run as `python -m seamark.services.persistent.job FOLDER`, in the study. It renews the lease of the supervisor: when
the whole job is killed, by whatever means, the server ends with the lease.
"""

import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from seamark.dispatch.identity import node
from seamark.dispatch.slurm import commands
from seamark.errors import UserError
from seamark.services.persistent.instance import Instance
from seamark.services.persistent.request import wanted
from seamark.services.persistent.start import limit_min, serve
from seamark.services.supervisor import deployment as servers
from seamark.services.supervisor.events import log_event

LOOPBACK = ("127.0.0.1", "localhost", "::1")
RENEW_S = 1.0
EARLY_S = 15.0
"""How long before Slurm would end the job we end it ourselves, so that its server ends in order."""


def keep(instance: Instance, root: Path) -> int:
    """Serve until the server ends, the time is over or a signal comes; return the exit code."""
    signal.signal(signal.SIGTERM, _end)
    asked = wanted(root, instance)
    time_s = asked.request.time_s
    ends_s = time.monotonic() + min(time_s, limit_min(time_s) * 60 - EARLY_S)
    site = asked.study.site
    if site.address in LOOPBACK:
        site = replace(site, address=commands.address_of(node()))
    why = "sigterm"
    try:
        answer = serve(instance, asked, site)
        log_event("standing", id=instance.id, status=answer["status"], host=answer["host"], ports=answer["ports"])
        if answer["status"] != "ok":
            return 1
        while servers.alive(instance.folder):
            if time.monotonic() >= ends_s:
                why = "time-limit"
                return 0
            servers.renew(instance.folder)
            time.sleep(RENEW_S)
        return 0
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        servers.stop(instance.folder, why)
        instance.close()


def _end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def main(argv: list[str]) -> int:
    """Keep the server of a folder; a mistake is a line on standard error."""
    try:
        return keep(Instance(root=Path(argv[0])), Path.cwd())
    except UserError as mistake:
        print(mistake, file=sys.stderr)
        return mistake.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
