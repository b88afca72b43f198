"""The shortest makespan of a tiny workload, by trying every order of its nodes and every window of each."""

from itertools import permutations, product


def shortest_makespan_s(work, machine):
    """Return the least makespan.

    Nodes are taken in every order that respects their edges, each as early as possible on every window. Every
    schedule without needless idle time is one of these.
    """
    nodes = range(work.nodes)
    table = machine.fetch_table(work.models)
    before = {node: [] for node in nodes}
    for node in nodes:
        for distance in work.successors[node]:
            before[node + distance].append(node)
    best_s = float("inf")
    windows = [range(machine.gpus - work.need[node] + 1) for node in nodes]
    for order in permutations(nodes):
        place = {node: i for i, node in enumerate(order)}
        if any(place[earlier] > place[node] for node in nodes for earlier in before[node]):
            continue
        for chosen in product(*(windows[node] for node in order)):
            free_s, held = [0.0] * machine.gpus, [len(work.models)] * machine.gpus
            end_s = {}
            for node, first in zip(order, chosen, strict=True):
                window = range(first, first + work.need[node])
                taken_s = max(
                    work.arrival_s[int(work.request_of[node])],
                    *(free_s[gpu] for gpu in window),
                    *(end_s[earlier] for earlier in before[node]),
                )
                end_s[node] = taken_s + table[work.model[node]][held[first]] + work.duration_s[node]
                for gpu in window:
                    free_s[gpu], held[gpu] = end_s[node], work.model[node]
            best_s = min(best_s, max(end_s.values()))
    return best_s
