"""LLM replicas once more, slow and literal: each token of each step, written from the text of
`simulation/llm/replica.py` and sharing no code with the simulator. It takes and returns plain data."""


class Request:
    def __init__(self, number, arrival_s, prompt, reply, cached=0, received=0):
        self.number, self.arrival_s, self.prompt, self.reply = number, arrival_s, prompt, reply
        self.cached, self.received = cached, received
        self.held = self.generated = self.preemptions = 0
        self.scheduled_s = self.first_token_s = self.completed_s = self.replica = None

    @property
    def known(self):
        return self.prompt + self.generated


class Replica:
    """Takes one step at a time; `costs` are c0, cp, cd, ck."""

    def __init__(self, costs, blocks, size, most, budget):
        self.costs, self.blocks, self.size, self.most, self.budget = costs, blocks, size, most, budget
        self.running, self.waiting = [], []
        self.free = blocks
        self.step_ends_s = None

    def blocks_of(self, tokens):
        return -(-tokens // self.size)

    def load(self):
        return len(self.running) + len(self.waiting)

    def begin(self, now_s):
        """Begin a step, which ends at `step_ends_s`."""
        budget, prompt_tokens, decoding = self.budget, 0, 0
        preempted, index = False, 0
        while index < len(self.running):
            request = self.running[index]
            takes = min(request.known - request.held, budget)
            need = self.blocks_of(request.held + takes) - self.blocks_of(request.held)
            alive = True
            while need > self.free:
                victim = self.running.pop()
                self.free += self.blocks_of(victim.held)
                victim.held = 0
                victim.preemptions += 1
                self.waiting.insert(0, victim)
                preempted = True
                if victim is request:
                    alive = False
                    break
            if not alive:
                break
            self.free -= need
            if request.known - request.held == 1 and request.decodes:
                decoding += 1
            else:
                prompt_tokens += takes
            request.held += takes
            budget -= takes
            index += 1
        while not preempted and self.waiting and budget > 0 and len(self.running) < self.most:
            request = self.waiting[0]
            at_once = request.cached if request.preemptions else max(request.cached, request.received)
            takes = min(request.known - at_once, budget)
            need = self.blocks_of(at_once + takes)
            if need > self.free:
                break
            self.waiting.pop(0)
            self.running.append(request)
            request.decodes = False
            self.free -= need
            request.held = at_once + takes
            budget -= takes
            prompt_tokens += takes
            if request.scheduled_s is None:
                request.scheduled_s = now_s
        c0, cp, cd, ck = self.costs
        tokens = sum(request.held for request in self.running)
        self.step_ends_s = now_s + (c0 + cp * prompt_tokens + cd * decoding + ck * tokens)

    def end(self):
        """End the step: requests that hold all that is known have a token more."""
        now_s, self.step_ends_s = self.step_ends_s, None
        left = []
        for request in self.running:
            if request.held == request.known:
                request.generated += 1
                request.decodes = True
                if request.generated == 1:
                    request.first_token_s = now_s
                if request.generated == request.reply:
                    request.completed_s = now_s
                    self.free += self.blocks_of(request.held)
                    continue
            left.append(request)
        self.running = left


def run(replicas, requests, choose):
    """Serve requests, sorted by arrival. Ends of steps come first, then arrivals, then begins of steps.

    `choose(request, loads)` returns the number of a replica, or None: the request waits in front of all of them until
    a step has ended.
    """
    coming, held_back = list(requests), []

    def route(now_s):
        while held_back:
            chosen = choose(held_back[0], [replica.load() for replica in replicas])
            if chosen is None:
                return
            request = held_back.pop(0)
            request.replica = chosen
            replicas[chosen].waiting.append(request)

    now_s = 0.0
    while True:
        times = [replica.step_ends_s for replica in replicas if replica.step_ends_s is not None]
        if coming:
            times.append(coming[0].arrival_s)
        if not times:
            return requests
        now_s = min(times)
        for replica in replicas:
            if replica.step_ends_s == now_s:
                replica.end()
        route(now_s)
        while coming and coming[0].arrival_s == now_s:
            held_back.append(coming.pop(0))
            route(now_s)
        for replica in replicas:
            if replica.step_ends_s is None and replica.load():
                replica.begin(now_s)
