"""Submits exported job scripts to Slurm: as many at a time as the site's limits allow, the report last.

Run by submit.sh in the study, as `python -m seamark.workflow.submit_jobs SCENARIO_FILE SITE SCENARIO FOLDER ...`.
"""

import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from seamark.dispatch.job import submit_limits
from seamark.dispatch.slurm.commands import queued_by_qos, queued_numbers, submit_script
from seamark.errors import SiteError, UserError
from seamark.planning.study import Study
from seamark.workflow.export_slurm import LONGEST_ARRAY, REPORT
from seamark.workflow.rules_api import MEASURE_ANEW, RETRY, plan

SWITCHES = {"--retry": RETRY, "--measure-anew": MEASURE_ANEW}
"""Options of submit.sh itself, before those of sbatch; each sets a variable that the jobs inherit."""
POLL = "SEAMARK_LOOK_S"
"""Environment variable: seconds between two polls of the queue while it is full, 30 by default."""
ARRAY = re.compile(r"^#SBATCH --array=0-(\d+)(%\d+)?$", re.MULTILINE)


def submit_jobs(study: Study, folder: Path, options: Sequence[str]) -> None:
    """Submit the scripts in `folder` and print the number of each job; wait for room in the queue before each.

    Raises SiteError when sbatch refuses one: the jobs listed until then stay submitted.
    """
    numbers = []
    for script in sorted(folder.glob("deployments*.sbatch"), key=lambda path: (len(path.name), path.name)):
        array = ARRAY.search(script.read_text(encoding="utf-8"))
        tasks, first = int(array[1]) + 1 if array else 1, 0
        while first < tasks:
            last = min(first + _wait_for_room(study), tasks) - 1
            part = [f"--array={first}-{last}{array[2] or ''}"] if array else []
            numbers.append(_submit(script, [*part, *options]))
            first = last + 1
    _wait_for_room(study)
    queued = queued_numbers()
    after = "".join(f":{number}" for number in numbers if number in queued)
    _submit(folder / REPORT, [*([f"--dependency=afterany{after}"] if after else []), *options])


def _submit(script: Path, options: Sequence[str]) -> str:
    try:
        number = submit_script(script, options)
    except SiteError as refused:
        remedy = "What is listed above is submitted; call this again when there is room."
        raise SiteError(*refused.mistakes, remedy) from None
    print(number, script.name, flush=True)
    return number


def _wait_for_room(study: Study) -> int:
    """Wait until another job may be submitted; return the number of array tasks that may be."""
    while (room := _room(study)) <= 0:
        time.sleep(float(os.environ.get(POLL, "30")))
    return room


def _room(study: Study) -> int:
    limits = submit_limits(study.site, study.plan.qos)
    if not limits:
        return LONGEST_ARRAY
    queued = queued_by_qos()
    if queued is None:
        return 0
    taken = {qos: queued.total() if qos is None else queued[qos] for qos in limits}
    return min(LONGEST_ARRAY, *(most - taken[qos] for qos, most in limits.items()))


def main(argv: Sequence[str]) -> int:
    """Write the plan and submit everything; print a mistake on standard error."""
    scenario_file, site, scenario, folder, *options = argv
    while options and options[0] in SWITCHES:
        os.environ[SWITCHES[options.pop(0)]] = "yes"
    try:
        plan(scenario_file, site, scenario)
        Path("logs", scenario).mkdir(parents=True, exist_ok=True)
        submit_jobs(Study.at(Path.cwd(), scenario=scenario_file, site=site), Path(folder), options)
    except UserError as mistake:
        print(mistake, file=sys.stderr)
        return mistake.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
