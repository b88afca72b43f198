"""Tests only: a Snakemake with this folder on PYTHONPATH asks Slurm each second.

The executor plugin waits ten seconds longer after each look at which nothing had ended, and no setting bounds that.
"""

import sys

if "snakemake" in sys.orig_argv and "--profile" in sys.orig_argv:
    import asyncio

    from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

    async def _soon(self: RemoteExecutor) -> None:
        await asyncio.sleep(min(1.0, self.next_seconds_between_status_checks or 1.0))

    RemoteExecutor.sleep = _soon  # type: ignore[method-assign]
