"""Several LLM replicas behind a router, and prompts and replies on replicas of their own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from seamark.errors import UserError
from seamark_simulate.model.fitted_model import Router
from seamark_simulate.simulation.llm.replica import LlmReplica, LlmReplies, LlmRequests, require_servable
from seamark_simulate.simulation.llm.steps import FOREVER, ReplicaRun
from seamark_simulate.simulation.schedule import Floats, Ints
from seamark_simulate.simulation.station import blind_route, two_of


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Equal replicas behind a router.

    The routers are those of a `Station`, by the requests that wait or run at a replica when one arrives; those that
    end at that moment have left. `one-queue`: requests wait in front of all replicas while each has `max_num_seqs`
    of them; the first goes to the replica with the fewest as soon as one has fewer, of equals to the lowest.
    """

    replica: LlmReplica
    replicas: int = 1
    router: Router = "least-loaded"


@dataclass(frozen=True, kw_only=True)
class SplitFleet:
    """Replicas that compute prompts and replicas that decode.

    A request first has its prompt and first token from the fleet `prefill`, whose blocks are then free. `transfer_s`
    and `transfer_token_s` for each token of the prompt later it arrives at the fleet `decode` with the KV of its
    prompt. There the step that admits it computes its first token, as one token of a prompt, and generates the
    second; after a preemption its whole prompt is computed there. A reply of one token ends on `prefill`.
    """

    prefill: Fleet
    decode: Fleet
    transfer_s: float = 0.0
    transfer_token_s: float = 0.0


def serve_requests(fleet: Fleet, requests: LlmRequests, random: np.random.Generator) -> LlmReplies:
    """Serve requests by a fleet. Only the routers `random` and `power-of-two` draw.

    Raises UserError, with all mistakes, for limits or requests that no step could serve.
    """
    _require_replicas(fleet)
    require_servable(fleet.replica, requests)
    return _serve(fleet, requests, np.zeros(len(requests), np.int64), random)


def serve_split(fleet: SplitFleet, requests: LlmRequests, random: np.random.Generator) -> LlmReplies:
    """Serve requests by a split fleet: `replica` is that of `decode` (of `prefill` for a reply of one token), and
    preemptions of both count.

    Raises UserError, with all mistakes, for limits or requests that no step could serve.
    """
    prompts = replace(requests, reply_tokens=np.minimum(requests.reply_tokens, 1))
    for part, asked in ((fleet.prefill, prompts), (fleet.decode, requests)):
        _require_replicas(part)
        require_servable(part.replica, asked)
    first = serve_requests(fleet.prefill, prompts, random)
    arrival_s = first.completed_s + fleet.transfer_s + fleet.transfer_token_s * requests.prompt_tokens
    order = np.argsort(arrival_s, kind="stable")
    order = order[requests.reply_tokens[order] > 1]
    rest = LlmRequests(
        arrival_s=arrival_s[order],
        prompt_tokens=requests.prompt_tokens[order] + 1,
        reply_tokens=requests.reply_tokens[order] - 1,
    )
    second = _serve(fleet.decode, rest, requests.prompt_tokens[order], random)
    replies = replace(first, reply_tokens=requests.reply_tokens, completed_s=first.completed_s.copy())
    replies.completed_s[order] = second.completed_s
    replies.replica[order] = second.replica
    replies.preemptions[order] += second.preemptions
    return replies


def _require_replicas(fleet: Fleet) -> None:
    if fleet.replicas < 1:
        raise UserError(f"replicas: {fleet.replicas} is not allowed. Give 1 or more.")


def _serve(fleet: Fleet, requests: LlmRequests, received: Ints, random: np.random.Generator) -> LlmReplies:
    """Serve requests that arrive with the KV of some tokens."""
    runs = [ReplicaRun(fleet.replica) for _ in range(fleet.replicas)]
    columns = (requests.prompt_tokens, requests.reply_tokens, requests.cached, received)
    count = len(requests)
    alone = fleet.replicas == 1
    where = np.zeros(count, np.int64) if alone else blind_route(fleet.router, fleet.replicas, count, random)
    if where is not None:
        for number, run in enumerate(runs):
            mine = where == number
            run.add(requests.arrival_s[mine].tolist(), *(column[mine].tolist() for column in columns))
    else:
        where = _by_load(fleet, runs, requests.arrival_s, [column.tolist() for column in columns], random)
    for run in runs:
        run.advance()

    def gathered(of_run: Callable[[ReplicaRun], Sequence[float]]) -> Floats:
        values = np.empty(count)
        for number, run in enumerate(runs):
            values[where == number] = of_run(run)
        return values

    return LlmReplies(
        replica=where,
        arrival_s=requests.arrival_s,
        scheduled_s=gathered(lambda run: run.scheduled_s),
        first_token_s=gathered(lambda run: run.first_token_s),
        completed_s=gathered(lambda run: run.completed_s),
        preemptions=gathered(lambda run: run.preemptions).astype(np.int64),
        reply_tokens=requests.reply_tokens,
    )


def _by_load(
    fleet: Fleet,
    runs: Sequence[ReplicaRun],
    arrival_s: Floats,
    columns: Sequence[Sequence[int]],
    random: np.random.Generator,
) -> Ints:
    """Send each request to the replica with the fewest: of two drawn ones, else of all; return where they went."""
    pairs = two_of(len(runs), len(arrival_s), random) if fleet.router == "power-of-two" else None
    most = fleet.replica.max_num_seqs if fleet.router == "one-queue" else FOREVER
    everyone, at_s, where = range(len(runs)), -FOREVER, []
    for number, (arrives_s, *row) in enumerate(zip(arrival_s.tolist(), *columns, strict=True)):
        at_s = max(at_s, arrives_s)
        candidates = everyone if pairs is None else pairs[number]
        for candidate in candidates:
            runs[candidate].advance(at_s)
        if min(runs[candidate].load_at(at_s) for candidate in candidates) >= most:
            at_s = min(run.next_end_s(at_s) for run in runs)
        chosen = min(candidates, key=lambda candidate: runs[candidate].load_at(at_s))
        runs[chosen].add([at_s], *([value] for value in row))
        where.append(chosen)
    return np.asarray(where, np.int64)
