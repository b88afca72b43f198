"""The steps of one replica. Steps that are alike are summed in closed form, so replies may be long at no cost."""

from collections.abc import Generator, Sequence
from heapq import heappop, heappush
from itertools import count as counting
from math import sqrt
from operator import mul

from seamark_simulate.simulation.llm.replica import LlmReplica

FOREVER = float("inf")
NEVER = -1
"""Last step, or number, of a request that has none."""
NUMBER_BITS = 32
NUMBER = (1 << NUMBER_BITS) - 1


class ReplicaRun:
    """One replica under way: requests are added in the order of arrival, then time is advanced.

    By request, in the order in which they were added: `scheduled_s`, `first_token_s`, `completed_s`, `preemptions`.
    `now_s` is the end of the last step.
    """

    def __init__(self, replica: LlmReplica) -> None:
        self.arrival_s: list[float] = []
        self.prompt: list[int] = []
        self.reply: list[int] = []
        self.cached: list[int] = []
        self.received: list[int] = []
        self.scheduled_s: list[float] = []
        self.first_token_s: list[float] = []
        self.completed_s: list[float] = []
        self.preemptions: list[int] = []
        self.now_s = -FOREVER
        self._ended = 0
        self._ended_last = 0
        self._steps = _steps(replica, self)
        next(self._steps)

    def add(
        self,
        arrival_s: Sequence[float],
        prompt: Sequence[int],
        reply: Sequence[int],
        cached: Sequence[int],
        received: Sequence[int],
    ) -> None:
        """Add requests, none of which arrives before one that is there."""
        nothing = [-1.0] * len(arrival_s)
        self.arrival_s += arrival_s
        self.prompt += prompt
        self.reply += reply
        self.cached += cached
        self.received += received
        self.scheduled_s += nothing
        self.first_token_s += nothing
        self.completed_s += nothing
        self.preemptions += [0] * len(arrival_s)

    def advance(self, until_s: float = FOREVER, *, to_an_end: bool = False) -> None:
        """Run all steps that begin before a time, or those until a request ends."""
        self._steps.send((until_s, to_an_end))

    def load_at(self, at_s: float) -> int:
        """Return how many requests are there at a time to which the run was advanced, those that end then left
        out."""
        return len(self.arrival_s) - self._ended + (self._ended_last if self.now_s > at_s else 0)

    def next_end_s(self, at_s: float) -> float:
        """Return when the next request ends after a time to which the run was advanced; one must be there."""
        if not (self.now_s > at_s and self._ended_last):
            self.advance(to_an_end=True)
        return self.now_s

    def stand(self, now_s: float, ended: int, ended_last: int) -> None:
        """Note where the steps stand."""
        self.now_s, self._ended, self._ended_last = now_s, ended, ended_last


def _steps(replica: LlmReplica, run: ReplicaRun) -> Generator[None, tuple[float, bool], None]:
    """Run the steps of a replica; each value sent is a time until which steps begin, and whether an end stops them.

    A request that decodes takes a token in every step, so the number of its last step is known (`last`, in a heap
    `ends`), and with it the tokens that it holds now: `final` less the steps until then. `boundary[i]` counts the
    requests that need a further block in the steps i, i + B, i + 2 B and so on. While all running requests fit with
    their final blocks (`spare` >= 0), no block can be lacking and none is counted.

    One function with local names, because calls and attributes would take most of its time.
    """
    cost, size, blocks = replica.cost, replica.block_tokens, replica.kv_blocks
    base_s, prompt_s, sequence_s, kv_s = cost.base_s, cost.prompt_token_s, cost.sequence_s, cost.kv_token_s
    budget, most = replica.max_num_batched_tokens, replica.max_num_seqs
    arrival_s, prompt, reply, cached, received = run.arrival_s, run.prompt, run.reply, run.cached, run.received
    scheduled_s, first_token_s, completed_s = run.scheduled_s, run.first_token_s, run.completed_s
    preemptions = run.preemptions
    final: list[int] = []
    final_blocks: list[int] = []
    last: list[int] = []
    generated: list[int] = []  # tokens of the reply when last preempted
    boundary = [0] * size
    ends: list[int] = []  # last step << 32 | number; entries of preempted requests stay, and differ from `last`
    admitted: list[int] = []  # in order; entries of requests that have ended stay
    resumed: list[int] = []  # preempted ones, the next at the end
    finishing: list[tuple[int, int]] = []  # prompts that this step completes: number, tokens then held
    until_s, to_an_end, now_s = -FOREVER, False, -FOREVER
    step = decoding = held = head = count = ended = ended_last = 0
    spare = blocks
    partial, partial_held, partial_left = NEVER, 0, 0  # the prompt under way
    while True:
        begin_s = now_s
        if not decoding and partial < 0 and not resumed:
            begin_s = max(now_s, arrival_s[head]) if head < count else FOREVER
        if begin_s >= until_s or (to_an_end and ended_last):
            run.stand(now_s, ended, ended_last)
            until_s, to_an_end = yield
            if to_an_end:
                ended_last = 0
            for number in range(count, len(arrival_s)):
                tokens = prompt[number] + reply[number] - 1
                final.append(tokens)
                final_blocks.append(-(-tokens // size))
                last.append(NEVER)
                generated.append(0)
            count = len(arrival_s)
            continue
        now_s = begin_s

        # Blocks of the running requests, and preemptions.
        chunk = min(budget - decoding, partial_left)
        free = left_over = NEVER  # free blocks before this step, and beside those that running requests then have
        preempted = False
        needs = boundary
        if spare < 0:
            free, needs = _free_blocks(boundary, step, held, blocks)
            partial_blocks = -(-partial_held // size)
            free -= partial_blocks
            lacking = needs[0] + -(-(partial_held + chunk) // size) - partial_blocks
            while lacking > free:
                number = admitted.pop()
                if number == partial:
                    free += partial_blocks
                    lacking = needs[0]
                    partial, partial_held, partial_left, chunk = NEVER, 0, 0, 0
                elif (left := last[number] - step) > 0:
                    tokens = final[number] - left
                    generated[number] = reply[number] - left
                    last[number] = NEVER
                    free += -(-tokens // size)
                    lacking -= not tokens % size
                    boundary[(step + 1 - tokens) % size] -= 1
                    decoding -= 1
                    held -= tokens
                else:
                    continue
                spare += final_blocks[number]
                preemptions[number] += 1
                resumed.append(number)
                preempted = True
            left_over = free - lacking

        # Prompts: the one under way, then those that are admitted.
        room, running, prompt_blocks, prompt_held = budget - decoding - chunk, decoding, 0, 0
        if partial >= 0:
            running += 1
            partial_held += chunk
            partial_left -= chunk
            prompt_held = partial_held
            prompt_blocks = -(-partial_held // size)
            if not partial_left:
                finishing.append((partial, partial_held))
                partial, partial_held = NEVER, 0
        prompt_tokens = chunk
        while room and running < most and not preempted:
            if resumed:
                number = resumed[-1]
            elif head < count and arrival_s[head] <= now_s:
                number = head
            else:
                break
            tokens = cached[number]
            if received[number] > tokens and not preemptions[number]:
                tokens = received[number]
            lacks = prompt[number] + generated[number] - tokens
            takes = lacks if lacks < room else room
            tokens += takes
            takes_blocks = -(-tokens // size)
            if spare < final_blocks[number]:
                if left_over < 0:
                    left_over, needs = _free_blocks(boundary, step, held, blocks)
                    left_over -= needs[0] + prompt_blocks
                if takes_blocks > left_over:
                    break
                left_over -= takes_blocks
            prompt_blocks += takes_blocks
            if resumed:
                resumed.pop()
            else:
                head += 1
            if not preemptions[number]:
                scheduled_s[number] = now_s
            admitted.append(number)
            running += 1
            spare -= final_blocks[number]
            room -= takes
            prompt_tokens += takes
            prompt_held += tokens
            if takes == lacks:
                finishing.append((number, tokens))
            else:
                partial, partial_held, partial_left = number, tokens, lacks - takes

        # How many steps are alike, and how long they take.
        steps = 1
        first_s = base_s + prompt_s * prompt_tokens + sequence_s * decoding + kv_s * (held + decoding + prompt_held)
        took_s = first_s
        if not (finishing or preempted) and prompt_tokens == chunk:
            if decoding:
                steps = (ends[0] >> NUMBER_BITS) - step
                if spare < 0:
                    steps = 1 if chunk else min(steps, _steps_with(free, needs, decoding, steps))
            if chunk and (steps > 1 or not decoding):
                chunks = 1 + (partial_left - 1) // chunk
                steps = min(steps, chunks) if decoding else chunks
            if steps > 1:
                limit_s = until_s
                if not resumed and running < most and head < count and now_s < arrival_s[head] < limit_s:
                    limit_s = arrival_s[head]
                more_s = kv_s * (decoding + chunk)
                took_s = steps * first_s + more_s * (steps * (steps - 1) / 2)
                if now_s + took_s > limit_s:
                    steps = _steps_until(limit_s, now_s, first_s, more_s)
                    took_s = steps * first_s + more_s * (steps * (steps - 1) / 2)
                partial_held += (steps - 1) * chunk
                partial_left -= (steps - 1) * chunk
        step += steps
        now_s += took_s
        held += steps * decoding

        # First tokens and ends.
        if finishing:
            for number, tokens in finishing:
                if not generated[number]:
                    first_token_s[number] = now_s
                left = reply[number] - generated[number] - 1
                last[number] = step + left
                heappush(ends, (step + left) << NUMBER_BITS | number)
                boundary[(step + 1 - tokens) % size] += 1
                held += tokens
            decoding += len(finishing)
            finishing.clear()
        ended_last = 0
        while ends and ends[0] < step + 1 << NUMBER_BITS:
            entry = heappop(ends)
            number = entry & NUMBER
            if last[number] == entry >> NUMBER_BITS:
                completed_s[number] = now_s
                tokens = final[number]
                boundary[(step + 1 - tokens) % size] -= 1
                held -= tokens
                spare += final_blocks[number]
                decoding -= 1
                ended_last += 1
        ended += ended_last


def _free_blocks(boundary: list[int], step: int, held: int, blocks: int) -> tuple[int, list[int]]:
    """Return the free blocks before a step where only decoding requests have some, and how many requests need one in
    this step, in the next, and so on. A request that needs one in j steps has j free places in its last block."""
    turn = (step + 1) % len(boundary)
    needs = boundary[turn:] + boundary[:turn]
    return blocks - (held + sum(map(mul, needs, counting()))) // len(boundary), needs


def _steps_with(free: int, needs: list[int], decoding: int, most: int) -> int:
    """Return for how many steps free blocks last, at most `most`: every len(needs) steps each request needs one."""
    size = len(needs)
    cycles = free // decoding
    steps = cycles * size
    if steps >= most:
        return most
    left = free - cycles * decoding
    for need in needs:
        left -= need
        if left < 0:
            break
        steps += 1
    return min(steps, most)


def _steps_until(limit_s: float, now_s: float, first_s: float, more_s: float) -> int:
    """Return after how many steps a time is reached, of which the first takes `first_s` and each later one `more_s`
    more; they reach it."""
    rest_s = limit_s - now_s
    half = first_s - more_s / 2
    steps = max(1, round(2 * rest_s / (half + sqrt(half * half + 2 * more_s * rest_s))))
    while now_s + (steps * first_s + more_s * (steps * (steps - 1) / 2)) < limit_s:
        steps += 1
    while steps > 1 and now_s + ((steps - 1) * first_s + more_s * ((steps - 1) * (steps - 2) / 2)) >= limit_s:
        steps -= 1
    return steps
