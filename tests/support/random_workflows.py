"""Seeded small systems and requests, as documents of System C's files and as nouns, with many ties."""

import random

from seamark_simulate.simulation.system import Edge, Model, Request, System, Workflow, WorkflowNode


def documents(seed, *, most_requests=5, most_nodes=4, most_gpus=6, windows=True):
    """Return (config, requests, gpus): documents with `at_s` in place of a time stamp."""
    rng = random.Random(seed)
    gpus = rng.randint(1, most_gpus)
    # few sizes and times, so that switching times, arrivals and ends are often equal; others are any number
    number = (lambda: rng.choice((0.0, 0.5, 1.0, 2.0, 3.0))) if rng.random() < 0.5 else (lambda: rng.random() * 9)
    models = {}
    for name in [f"m{i}" for i in range(rng.randint(1, 4))]:
        models[name] = {
            "memory_gb": rng.choice((4.0, 8.0, 8.0, 14.0, 20 * rng.random())),
            "gpus_required": rng.choice((1, 1, 1, rng.randint(1, gpus))) if windows else 1,
            "load_time_seconds": number(),
        }
        if rng.random() < 0.5:
            models[name] |= {"tokens_per_second": rng.choice((3, 50)), "token_mean": rng.choice((1, 50, 100))}
        if rng.random() < 0.5:
            models[name]["inference_time_mean"] = number()
    workflows = {}
    for name in [f"w{i}" for i in range(rng.randint(1, 3))]:
        ids = [f"n{i}" for i in range(rng.randint(1, most_nodes))]
        nodes = [{"id": each, "model": rng.choice(list(models))} for each in ids]
        order = rng.sample(ids, len(ids))
        edges = [{"from": a, "to": b} for i, a in enumerate(order) for b in order[i + 1 :] if rng.random() < 0.4]
        rng.shuffle(edges)
        workflows[name] = {"nodes": nodes, "edges": edges}
    requests = []
    for i in range(rng.randint(1, most_requests)):
        workflow = rng.choice(list(workflows))
        known = [node["id"] for node in workflows[workflow]["nodes"] if rng.random() < 0.6]
        requests.append(
            {
                "request_id": f"r{i}",
                "at_s": number(),
                "workflow_id": workflow,
                "node_execution_times": {each: number() for each in known},
            }
        )
    return {"models": models, "workflows": workflows}, requests, gpus


def nouns(config, requests):
    """Return the same as System and requests."""
    models = {
        name: Model(
            id=name,
            memory_gb=each["memory_gb"],
            gpus_required=each["gpus_required"],
            load_time_s=each["load_time_seconds"],
            tokens_per_second=each.get("tokens_per_second"),
            token_mean=each.get("token_mean"),
            inference_time_mean_s=each.get("inference_time_mean"),
        )
        for name, each in config["models"].items()
    }
    workflows = {
        name: Workflow(
            id=name,
            nodes=tuple(WorkflowNode(id=node["id"], model=node["model"]) for node in each["nodes"]),
            edges=tuple(Edge(source=edge["from"], target=edge["to"]) for edge in each["edges"]),
        )
        for name, each in config["workflows"].items()
    }
    asked = tuple(
        Request(
            id=each["request_id"],
            workflow=each["workflow_id"],
            at_s=each["at_s"],
            node_execution_times_s=each["node_execution_times"],
        )
        for each in requests
    )
    return System(models=models, workflows=workflows), asked
