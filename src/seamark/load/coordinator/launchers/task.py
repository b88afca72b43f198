"""Task of a Dask or Spark cluster: runs one worker of a load in a process of its own.

The function is sent by value, so it uses the standard library only.
"""

from typing import Any

LAUNCH_SPEC = "SEAMARK_CARRIED"
"""Environment variable with a launch spec: unlike arguments, it hides the token from process lists."""


def run_worker(spec: dict[str, Any]) -> dict[str, Any]:
    """Run the worker of `spec` until it ends; return how, and report it to the coordinator.

    `spec` has the worker's number, addresses and token of the coordinator, an interpreter and the file
    isolated_main.py, used if they exist on this machine (else this interpreter's own seamark is), and `detached`:
    whether the process survives the death of its launcher. It always ends with its connection. Raises nothing.
    """
    import importlib.util
    import json
    import os
    import signal
    import socket
    import subprocess
    import sys
    import tempfile
    from pathlib import Path

    python, isolated_main = spec["python"], spec["isolated_main"]
    how, tail, code = "", [], None
    if not (Path(python).exists() and Path(isolated_main).exists()):
        package = importlib.util.find_spec("seamark")
        python, isolated_main = sys.executable, None
        if package is not None and package.origin is not None:
            isolated_main = str(Path(package.origin).parent / "platform" / "isolated_main.py")
        else:
            how = f"was not started: neither {spec['isolated_main']} nor an installed package seamark is there"
    if isolated_main is not None:
        worker_spec = {key: spec[key] for key in ("worker", "addresses", "token")}
        if not spec["detached"]:
            worker_spec["parent_pid"] = os.getpid()
        with tempfile.TemporaryFile() as log:
            try:
                process = subprocess.Popen(
                    [python, isolated_main, "seamark.load.workers.remote_worker"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, LAUNCH_SPEC: json.dumps(worker_spec)},
                    start_new_session=spec["detached"],
                )
                code = process.wait()
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            except OSError as error:
                how = f"was not started: {error}"
            log.seek(0)
            tail = log.read().decode(errors="replace").splitlines()[-20:]
    ended = {"worker": spec["worker"], "host": socket.gethostname(), "code": code, "how": how, "tail": tail}
    if code != 0:
        for host, port in spec["addresses"]:
            try:
                with socket.create_connection((host, port), timeout=5) as connection:
                    connection.sendall(f"{spec['token']}\nhello {json.dumps({'ended': ended})}\n".encode())
                    break
            except OSError:
                continue
    return ended
