"""Time and memory of planning by number of trials: `python benchmarks/plan_scale.py`. Prints a table.

Each size runs in a process of its own: read a scenario of three factors, plan it, write plan.json, read it back.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from seamark.model.trial import Plan
from seamark.storage.documents import read, write

ROOT = Path(__file__).parent.parent
SIZES = (100, 1_000, 10_000, 20_000)  # the last: as many as a plan may have
LIMITS = "10,000 trials: less than 15 s and 500 MB"


def measure(trials: int) -> dict[str, float]:
    """Plan that many trials in this process; return seconds and peak memory."""
    start = time.perf_counter()
    from seamark.config.read import read_scenario, read_services, read_site
    from seamark.planning.plan import plan
    from seamark.planning.plan_text import describe

    imported = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scale.yaml"
        levels = ", ".join(str(level) for level in range(1, trials // 20 + 1))
        path.write_text(
            "scenario: scale\nrepetitions: 5\nworkload:\n  service: vllm\n  tensor_parallel: [1, 2]\n"
            f"  batch: [1, 8]\n  prompt_len: [{levels}]\n"
        )
        services = read_services(ROOT / "config" / "services")
        site = read_site(ROOT / "config" / "sites" / "local.yaml")
        scenario = read_scenario(path, services, site)
        known = time.perf_counter()
        found = plan(scenario, services, site)
        planned = time.perf_counter()
        describe(found, services, site)
        described = time.perf_counter()
        write(Path(folder) / "plan.json", found)
        written = time.perf_counter()
        assert len(read(Path(folder) / "plan.json", Plan).trials) == len(found.trials)
        loaded = time.perf_counter()
    return {
        "trials": len(found.trials),
        "import_s": imported - start,
        "read_s": known - imported,
        "plan_s": planned - known,
        "describe_s": described - planned,
        "write_s": written - described,
        "load_s": loaded - written,
        "total_s": loaded - start,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    }


def main() -> None:
    """Measure every size and print a line for each."""
    header = ("trials", "import_s", "read_s", "plan_s", "describe_s", "write_s", "load_s", "total_s", "rss_mb")
    print("".join(f"{name:>11}" for name in header))
    for size in SIZES:
        command = [sys.executable, __file__, str(size)]
        row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(
            "".join(
                f"{row[name]:>11.0f}" if name in ("trials", "rss_mb") else f"{row[name]:>11.2f}" for name in header
            )
        )
    print(LIMITS)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(int(sys.argv[1]))))
    else:
        main()
