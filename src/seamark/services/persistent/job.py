"""Batch job of a persistent server: serves until the server ends or the job's time is over.

Run as `python -m seamark.services.persistent.job FOLDER`, in the study. It renews the lease of the supervisor: when
the whole job is killed, by whatever means, the server ends with the lease.
"""

import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from seamark.dispatch.dispatcher import dispatcher_here
from seamark.dispatch.identity import node
from seamark.errors import UserError
from seamark.platform.process_tree import exit_on_signals
from seamark.services.persistent.instance import Instance
from seamark.services.persistent.request import validate_request
from seamark.services.persistent.start import limit_min, serve
from seamark.services.supervisor import deployment as servers
from seamark.services.supervisor.events import log_event

LOOPBACK = ("127.0.0.1", "localhost", "::1")
RENEW_S = 1.0
END_EARLY_S = 15.0
"""The job ends its server this long before its own time limit, so that the server shuts down in order."""


def serve_until_end(instance: Instance, root: Path) -> int:
    """Serve until the server ends, the time is over or SIGTERM arrives; return the exit code."""
    with exit_on_signals(signal.SIGTERM):
        validated = validate_request(root, instance)
        time_s = validated.request.time_s
        ends_s = time.monotonic() + min(time_s, limit_min(time_s) * 60 - END_EARLY_S)
        site = validated.study.site
        if site.address in LOOPBACK:
            site = replace(site, address=dispatcher_here().address_of(node()))
        why = "sigterm"
        try:
            answer = serve(instance, validated, site)
            log_event(
                "persistent-server-started",
                id=instance.id,
                status=answer.status,
                host=answer.host,
                ports=dict(answer.ports),
            )
            if not answer.ok:
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


def main(argv: list[str]) -> int:
    """Serve the persistent server of a folder; print a mistake on standard error."""
    try:
        return serve_until_end(Instance(root=Path(argv[0])), Path.cwd())
    except UserError as mistake:
        print(mistake, file=sys.stderr)
        return mistake.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
