"""Reader of traces of language models (CSV of Azure or BurstGPT, JSONL of Mooncake or our own): arrivals with tokens.

Each request is one run of the only workflow of the system. A node whose model has `tokens_per_second` takes the
tokens of the reply over it; other nodes take the time of their model.
"""

from dataclasses import replace
from pathlib import Path

from seamark.config.yaml_source import Mistakes
from seamark.errors import Mistake
from seamark.patterns.trace_file import is_trace, recorded_rows
from seamark_simulate.simulation.system import Request, System
from seamark_simulate.simulation.workload import Requests

MOST_REQUESTS = 10_000_000


def is_token_trace(head: bytes) -> bool:
    """Return whether the first line is the header of a CSV with a time, or an object with one."""
    return is_trace(next((line for line in head.splitlines() if line.strip()), b""))


def read_token_trace(path: Path, system: System | None, mistakes: Mistakes) -> Requests | None:
    """Return a request for each row of a trace, None after noting a mistake."""
    assert system is not None, "the format needs models"
    if len(system.workflows) != 1:
        names = ", ".join(system.workflows)
        text = (
            f"its requests name no workflow, and the system has {len(system.workflows)}: {names}."
            " Give a system with one workflow."
        )
        mistakes.of_file(path, text, "conflict")
        return None
    [workflow] = system.workflows.values()
    rates = {node.id: system.models[node.model].tokens_per_second for node in workflow.nodes}
    requests = []
    try:
        for number, row in enumerate(recorded_rows(str(path)), 1):
            if number > MOST_REQUESTS:
                mistakes.of_file(path, f"more than {MOST_REQUESTS:,} requests.", "out_of_limits")
                return None
            tokens = row.output_tokens
            times_s = {} if tokens is None else {node: tokens / rate for node, rate in rates.items() if rate}
            requests.append(
                Request(
                    id=f"request_{number}",
                    workflow=workflow.id,
                    at_s=row.at_s,
                    node_execution_times_s=times_s,
                    times_source="tokens_per_second",
                )
            )
    except ValueError as error:
        mistakes.note(Mistake(code="worded", text=f"{error}."))
        return None
    except OSError as error:
        mistakes.of_file(path, f"cannot be read: {error.strerror or error}.", "unreadable")
        return None
    if not requests:
        mistakes.of_file(path, "the trace is empty. Give one with a request or more.", "no_value")
        return None
    first_s = requests[0].at_s or 0.0
    if first_s:
        requests = [replace(request, at_s=(request.at_s or 0.0) - first_s) for request in requests]
    return Requests(system=system, requests=tuple(requests))
