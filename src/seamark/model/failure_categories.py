"""Why a trial as a whole failed: the categories of load.json, with the remedy of each. A recipe adds its own."""

from collections.abc import Mapping

from seamark.model.service import FailureCategory

ALL_FAILED = "all_requests_failed"
INTERRUPTED = "interrupted"
"""Category of a load that ended with its run, and the beginning of its reason: the trial has no result."""
OUT_OF_MEMORY = "out_of_memory"
TIMEOUT = "timeout"
"""Also the name of the failure of a request that took too long."""
STATED_BY_SERVERS = ("filesystem_error",)
"""Categories that any server may state as the reason of its end, beside those of its recipe."""

FAILURE_CATEGORIES: Mapping[str, FailureCategory] = {
    "server_died": FailureCategory(
        help="The server ended while it was needed.",
        remedy="See the server's log. `bench retry` measures the trial again.",
    ),
    "server_never_healthy": FailureCategory(
        help="The server ended before its health probe was answered, or did not answer in time.",
        remedy="See the server's log; a slow start needs a longer health timeout_s in the recipe.",
    ),
    "port_taken": FailureCategory(
        help="Another process listens on a port that the server was to have.",
        remedy="Stop what listens on the port, or let Seamark choose one.",
    ),
    "setup_failed": FailureCategory(
        help="A set-up command failed, or what the load or the server needs cannot be had.",
        remedy="See the log of the deployment's setup.",
    ),
    "dataset_error": FailureCategory(
        help="The data of a task cannot be had, or are not of the form that its benchmark describes.",
        remedy="Put the data where the benchmark's `source` says, or correct it; then `bench retry`.",
        can_pass=False,
    ),
    "network_error": FailureCategory(
        help="The source of a task's data could not be reached.",
        remedy="Look at the network, or put the data into a folder that the benchmark's `source` names.",
    ),
    "filesystem_error": FailureCategory(
        help="A file that is there could not be read or written.",
        remedy="Look at its permissions and at the file system; then `bench retry`.",
    ),
    "client_died": FailureCategory(
        help="All workers of the load ended before their time, or load.json is damaged.",
        remedy="See the trial's log. `bench retry` measures the trial again.",
    ),
    OUT_OF_MEMORY: FailureCategory(
        help="The load, or what runs in its processes, needs more memory than the machine has left.",
        remedy="Lower what it holds at a time, or run less beside it; then `bench retry`.",
    ),
    ALL_FAILED: FailureCategory(
        help="No request of the load has a good reply.",
        remedy="See errors.by_category and the server's log.",
    ),
    "lane_died": FailureCategory(
        help="The lanes that ran the trial's deployment were killed, each time it was begun.",
        remedy="See the lane's log, and dmesg for the kernel's killer of processes; then `bench retry`.",
    ),
    "no_samples": FailureCategory(
        help="Nothing was sent or recorded, or the samples could not be kept.",
        remedy="`bench retry` measures the trial again.",
    ),
    "disk_full": FailureCategory(
        help="A file of the load could not be written for lack of space.",
        remedy="Free some space, then `bench retry`.",
    ),
    "program_failed": FailureCategory(
        help="A program ended with an error, or could not be started.",
        remedy="See the trial's files/stderr. `bench retry` runs the program again.",
    ),
    "wrong_record": FailureCategory(
        help="A program or driver recorded a sample, event or figure that cannot be.",
        remedy="Correct the driver; then `bench retry`.",
        can_pass=False,
    ),
    "figure_missing": FailureCategory(
        help="A figure of a command cannot be read from its output or files.",
        remedy="See the trial's files, and correct `figures`; then `bench retry`.",
        can_pass=False,
    ),
    "call_failed": FailureCategory(
        help="A model server answered a call of a workflow's node with an error, or with no reply that can be read.",
        remedy="See the reason of the execution and the server's log, then measure again.",
    ),
    TIMEOUT: FailureCategory(
        help="The load or the program was not done by its time limit.",
        remedy="Allow more time, or lower the load; then `bench retry`.",
    ),
    "not_tried": FailureCategory(
        help="Earlier trials of the deployment failed alike, so this one was left out.",
        remedy="Fix the cause of the earlier failures; `bench submit` then tries it.",
    ),
    "party_failed": FailureCategory(
        help="Another party of the trial could not begin.",
        remedy="See the party that failed. `bench retry` measures the trial again.",
    ),
    INTERRUPTED: FailureCategory(
        help="The run was ended from outside.",
        remedy="`bench submit` resumes it.",
    ),
    "no_level_met_the_slo": FailureCategory(
        help="A search found no load that meets the objectives.",
        remedy="See search.json. Lower search.from, loosen an objective, or give the search more time.",
    ),
    "no_probe_could_tell": FailureCategory(
        help="No probe of a search had a known outcome.",
        remedy="See search.json: its probes have the reasons.",
    ),
}


def can_pass(category: str | None, own: Mapping[str, FailureCategory]) -> bool:
    """Return whether another attempt may succeed after a failure of that category; `own` are those of the recipe."""
    known = own.get(category or "") or FAILURE_CATEGORIES.get(category or "")
    return known is None or known.can_pass
