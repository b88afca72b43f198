"""A driver's hooks for tests: files before the server starts, facts after it answers; or a failure, when told."""

import contextlib
import time
import urllib.request


def stage(target, seed):
    if target.settings.get("fail") == "stage":
        print("the disk of the stage is upside down")
        raise SystemExit(4)
    (target.data / "staged").write_text(str(seed))
    return {"staged_bytes": len(str(seed))}


def populate(target, seed):
    if target.settings.get("fail") == "populate":
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://{target.host}:{target.ports['main']}/die")
        time.sleep(60)
    with urllib.request.urlopen(f"http://{target.host}:{target.ports['main']}/") as reply:
        return {"populated": reply.read().decode()}
