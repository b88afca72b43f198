"""One measured trial of a server of language models, and its figures, measured or replayed in an open or a
closed loop."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from seamark_simulate.model.fitted_model import FitSource
from seamark_simulate.simulation.llm.fleet import Fleet, serve_requests
from seamark_simulate.simulation.llm.replica import LlmReplica, LlmReplies, LlmRequests, require_servable
from seamark_simulate.simulation.llm.steps import ReplicaRun
from seamark_simulate.simulation.schedule import Bools, Floats, Ints

FEWEST_FOR_P99 = 1_000


@dataclass(frozen=True, kw_only=True)
class ReplicaTrial:
    """Streamed replies of one server, by request in the order of sending, in seconds from the start of the load.

    `due_s` is when a request was to be sent, `sent_s` when it was, `first_s` and `last_s` when the first and the last
    chunk were read, all shape (requests,). Of `reply_tokens`, `first_tokens` came in the first chunk. `token_of`
    (numbers of requests) and `token_at_s` are the reads of chunks in the order of time, shape (reads,). `concurrency`
    is that of a closed loop, None for an open one. Requests due before `warmup_s` count in no figure; the measured
    window lasts until `until_s`.
    """

    source: FitSource
    treatment: str
    due_s: Floats
    sent_s: Floats
    first_s: Floats
    last_s: Floats
    prompt_tokens: Ints
    reply_tokens: Ints
    first_tokens: Ints
    token_of: Ints
    token_at_s: Floats
    concurrency: int | None = None
    warmup_s: float = 0.0
    until_s: float

    @property
    def id(self) -> str:
        """Its name in its scenario."""
        return self.source.trial

    @property
    def rate_rps(self) -> float:
        """Requests due in a second of the measured window."""
        return int(_counted(self.due_s, self.warmup_s, self.until_s).sum()) / (self.until_s - self.warmup_s)

    @cached_property
    def figures(self) -> dict[str, float]:
        """The measured figures."""
        further = self.reply_tokens - self.first_tokens
        return replica_figures(self.due_s, self.first_s, self.last_s, further, self.warmup_s, self.until_s)

    @cached_property
    def think_s(self) -> float:
        """Of a closed loop, the usual time between the end of a reply and the next request of that client."""
        if self.concurrency is None or len(self.sent_s) <= self.concurrency:
            return 0.0
        ends_s = np.sort(self.last_s)[: len(self.sent_s) - self.concurrency]
        return max(0.0, float(np.median(self.sent_s[self.concurrency :] - ends_s)))


def _counted(due_s: Floats, warmup_s: float, until_s: float) -> Bools:
    return np.asarray((due_s >= warmup_s) & (due_s < until_s))


def replica_figures(
    due_s: Floats, first_s: Floats, last_s: Floats, further_tokens: Ints, warmup_s: float, until_s: float
) -> dict[str, float]:
    """Return what is predicted of a trial, of the requests due after the warm-up, shape (requests,) each.

    Replies in a second of the measured window; mean, p50 and p99 of response times, times to the first token (ttft)
    and times of a further token (tpot), from when a request was due. p99 only of FEWEST_FOR_P99 requests or more,
    times of a token after the first chunk only of replies that have one.
    """
    counted = _counted(due_s, warmup_s, until_s)
    if not counted.any():
        return {}
    ended = int(((last_s >= warmup_s) & (last_s < until_s)).sum())
    figures = {"throughput_rps": ended / (until_s - warmup_s)}
    further = counted & (further_tokens > 0)
    groups = {
        "": (last_s - due_s)[counted],
        "ttft_": (first_s - due_s)[counted],
        "tpot_": ((last_s - first_s)[further]) / further_tokens[further],
    }
    for name, times_s in groups.items():
        if len(times_s):
            figures[f"{name}mean_s"] = float(times_s.mean())
            figures[f"{name}p50_s"] = float(np.median(times_s))
        if len(times_s) >= FEWEST_FOR_P99:
            figures[f"{name}p99_s"] = float(np.quantile(times_s, 0.99))
    return figures


def replayed(replica: LlmReplica, trial: ReplicaTrial, overhead_s: float) -> LlmReplies:
    """Return the replies of a replica to the load of a trial. `overhead_s` passes before a request reaches it.

    An open loop has the requests of the trial, a closed one its lengths, and sends when replies are complete.
    """
    if trial.concurrency is not None:
        return serve_closed_loop(
            replica,
            trial.prompt_tokens,
            trial.reply_tokens,
            concurrency=trial.concurrency,
            until_s=trial.until_s,
            think_s=trial.think_s + overhead_s,
        )
    requests = LlmRequests(
        arrival_s=np.maximum.accumulate(trial.sent_s + overhead_s),
        prompt_tokens=trial.prompt_tokens,
        reply_tokens=trial.reply_tokens,
    )
    return serve_requests(Fleet(replica=replica), requests, np.random.default_rng(0))


def replayed_figures(replica: LlmReplica, trial: ReplicaTrial, overhead_s: float) -> dict[str, float]:
    """Return the figures of a trial as a replica would have them."""
    replies = replayed(replica, trial, overhead_s)
    due_s = trial.due_s if trial.concurrency is None else np.maximum(0.0, replies.arrival_s - overhead_s)
    return replica_figures(
        due_s,
        replies.first_token_s,
        replies.completed_s,
        replies.reply_tokens - 1,
        trial.warmup_s,
        trial.until_s,
    )


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
