"""What a Dask or Spark task does: it runs one worker of a load in a process of its own, where the task runs.

The function goes there as a whole, so it needs nothing but the standard library.
"""

from typing import Any

ORDER = "SEAMARK_CARRIED"
"""The variable of the environment that holds an order: nobody reads its token from a list of processes there."""


def carry(order: dict[str, Any]) -> dict[str, Any]:
    """Run the worker that `order` names until it ends; return how, and tell the load's parent.

    `order` has the worker's number, the parent's addresses and token, the interpreter and the file isolated_main.py,
    used if they exist on this machine too (else this interpreter's own seamark is), and `alone`: whether the process
    lives on when its launcher is killed. It always ends with its connection to the parent. Raises nothing.
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

    python, outside = order["python"], order["outside"]
    how, tail, code = "", [], None
    if not (Path(python).exists() and Path(outside).exists()):
        found = importlib.util.find_spec("seamark")
        python, outside = sys.executable, None
        if found is not None and found.origin is not None:
            outside = str(Path(found.origin).parent / "platform" / "isolated_main.py")
        else:
            how = f"was not started: neither {order['outside']} nor an installed package seamark is there"
    if outside is not None:
        told = {key: order[key] for key in ("worker", "addresses", "token")}
        if not order["alone"]:
            told["parent_pid"] = os.getpid()
        with tempfile.TemporaryFile() as log:
            try:
                process = subprocess.Popen(
                    [python, outside, "seamark.load.workers.remote_worker"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, ORDER: json.dumps(told)},
                    start_new_session=order["alone"],
                )
                code = process.wait()
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            except OSError as error:
                how = f"was not started: {error}"
            log.seek(0)
            tail = log.read().decode(errors="replace").splitlines()[-20:]
    ended = {"worker": order["worker"], "host": socket.gethostname(), "code": code, "how": how, "tail": tail}
    if code != 0:
        for host, port in order["addresses"]:
            try:
                with socket.create_connection((host, port), timeout=5) as connection:
                    connection.sendall(f"{order['token']}\nhello {json.dumps({'ended': ended})}\n".encode())
                    break
            except OSError:
                continue
    return ended
