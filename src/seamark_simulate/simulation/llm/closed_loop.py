"""An LLM replica under a closed loop: a number of clients, each of which sends its next request after a reply."""

import numpy as np

from seamark_simulate.simulation.llm.replica import LlmReplica, LlmReplies, LlmRequests, require_servable
from seamark_simulate.simulation.llm.steps import ReplicaRun
from seamark_simulate.simulation.schedule import Ints


def serve_closed_loop(
    replica: LlmReplica,
    prompt_tokens: Ints,
    reply_tokens: Ints,
    *,
    concurrency: int,
    until_s: float,
    think_s: float = 0.0,
) -> LlmReplies:
    """Serve requests of these lengths, shape (requests,), from time 0; whoever is free takes the next.

    `concurrency` clients send one each at once, and another `think_s` after each reply that was complete before
    `until_s`. Where the lengths are used up they begin again. Raises UserError for what no step could serve, and
    ValueError where nothing takes any time, as such a loop never ends.
    """
    if think_s <= 0 and not any(vars(replica.cost).values()):
        raise ValueError("a closed loop never ends on a replica whose steps take no time")
    offered = LlmRequests(
        arrival_s=np.zeros(len(prompt_tokens)), prompt_tokens=prompt_tokens, reply_tokens=reply_tokens
    )
    require_servable(replica, offered)
    prompts, replies = prompt_tokens.tolist(), reply_tokens.tolist()
    run, sent, now_s, ended = ReplicaRun(replica), 0, 0.0, 0

    def send(at_s: float, count: int) -> None:
        nonlocal sent
        chosen = [number % len(prompts) for number in range(sent, sent + count)]
        none = [0] * count
        run.add([at_s] * count, [prompts[row] for row in chosen], [replies[row] for row in chosen], none, none)
        sent += count

    send(0.0, concurrency)
    while ended < sent:
        now_s = run.next_end_s(now_s)
        done = sent - run.load_at(now_s) - ended
        ended += done
        if now_s < until_s:
            send(now_s + think_s, done)
    return LlmReplies(
        replica=np.zeros(sent, np.int64),
        arrival_s=np.asarray(run.arrival_s),
        scheduled_s=np.asarray(run.scheduled_s),
        first_token_s=np.asarray(run.first_token_s),
        completed_s=np.asarray(run.completed_s),
        preemptions=np.asarray(run.preemptions, np.int64),
        reply_tokens=np.asarray([replies[number % len(replies)] for number in range(sent)], np.int64),
    )
