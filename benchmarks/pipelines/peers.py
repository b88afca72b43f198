"""The chain in other frameworks: `peers.py langgraph` or `peers.py ray`, then questions of child.py."""

import sys
import tempfile
from collections.abc import Callable
from functools import cache
from typing import Any, TypedDict

from child import answer, us_a_stage


@cache
def graph_of(depth: int) -> Callable[[int], Any]:
    """Return the function that sends a query through a StateGraph of nodes that hand it on."""
    from langgraph.graph import END, START, StateGraph

    class State(TypedDict):
        query: int

    def stage(state: State) -> State:
        return {"query": state["query"]}

    graph = StateGraph(State).add_sequence([(f"stage {number}", stage) for number in range(depth)])
    compiled = graph.add_edge(START, "stage 0").add_edge(f"stage {depth - 1}", END).compile()
    settings = {"recursion_limit": depth + 5}
    return lambda query: compiled.invoke({"query": query}, settings)


@cache
def actors_of(depth: int) -> Callable[[int], Any]:
    """Return the function that sends a query through Ray's actors: each is called with the reference of the last
    one's answer."""
    import ray

    class Stage:
        def run(self, query: int) -> int:
            return query

    stages = [ray.remote(Stage).remote() for _ in range(depth)]

    def call(query: int) -> Any:
        answer: Any = query
        for stage in stages:
            answer = stage.run.remote(answer)
        return ray.get(answer)

    return call


if __name__ == "__main__":
    if sys.argv[1] == "langgraph":
        answer(lambda depth, queries: us_a_stage(graph_of(depth), depth, queries))
    else:
        import ray

        with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=folder)
            answer(lambda depth, queries: us_a_stage(actors_of(depth), depth, queries))
            ray.shutdown()
