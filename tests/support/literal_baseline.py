"""The baseline scheduler once more, slow and literal: written from the requirements (System C), sharing no code with
the simulator. It takes the two documents as plain data, and returns the log lines and the executions."""

import heapq


def run(config, requests, gpus, cold_load="charged", online=False):
    """Return (lines, executions) of the baseline for documents of C3 and C4; `at_s` of a request is its arrival."""
    heap, serial, lines, executions = [], 0, [], []
    held = dict.fromkeys(range(gpus))  # the model of each GPU
    busy = dict.fromkeys(range(gpus), False)
    state = {}  # (request, node) -> dict
    ready = []

    for request in requests:
        heapq.heappush(heap, (request["at_s"] if online else 0.0, serial, "request_arrival", request))
        serial += 1

    def switch_time(gpu, model):
        old = held[gpu]
        if old == model:
            return 0.0, False
        if old is None:
            return (config["models"][model]["load_time_seconds"] if cold_load == "charged" else 0.0), False
        sizes = config["models"][old]["memory_gb"] + config["models"][model]["memory_gb"]
        return sizes / 16.0 + 2.0, True

    def choose(model, count):
        free = [gpu for gpu in range(gpus) if not busy[gpu]]
        if count > 1:
            for first in range(gpus):
                if all(first + i in free for i in range(count)):
                    return [first + i for i in range(count)]
            return None
        holding = [gpu for gpu in free if held[gpu] == model]
        empty = [gpu for gpu in free if held[gpu] is None]
        if holding:
            return [min(holding)]
        if empty:
            return [min(empty)]
        if free:
            return [min(free, key=lambda gpu: (switch_time(gpu, model)[0], gpu))]
        return None

    def node_time(request, node):
        times = request.get("node_execution_times", {})
        model = config["models"][node["model"]]
        if node["id"] in times:
            return times[node["id"]]
        if "inference_time_mean" in model:
            return model["inference_time_mean"]
        if "token_mean" in model and "tokens_per_second" in model:
            return model["token_mean"] / model["tokens_per_second"]
        return 10.0

    while heap:
        now, _, event, data = heapq.heappop(heap)
        if event == "request_arrival":
            request = data
            workflow = config["workflows"][request["workflow_id"]]
            lines.append(
                f"[{now:.2f}s] Processing request {request['request_id']} (workflow: {request['workflow_id']})"
            )
            for node in workflow["nodes"]:
                key = (request["request_id"], node["id"])
                before = [edge["from"] for edge in workflow.get("edges", []) if edge["to"] == node["id"]]
                state[key] = {"node": node, "request": request, "before": before, "done": False, "ready": None}
            for node in workflow["nodes"]:
                if not state[request["request_id"], node["id"]]["before"]:
                    state[request["request_id"], node["id"]]["ready"] = now
                    ready.append((request["request_id"], node["id"]))
        else:
            key, where = data
            request = state[key]["request"]
            for gpu in where:
                busy[gpu] = False
            state[key]["done"] = True
            lines.append(f"[{now:.2f}s] Completed node {key[1]} of request {key[0]} on GPU(s) {where}")
            mine = [other for other in state if other[0] == key[0]]
            if all(state[other]["done"] for other in mine):
                lines.append(f"[{now:.2f}s] Request {key[0]} completed")
            for edge in config["workflows"][request["workflow_id"]].get("edges", []):
                if edge["from"] == key[1]:
                    child = (key[0], edge["to"])
                    if all(state[key[0], name]["done"] for name in state[child]["before"]):
                        state[child]["ready"] = now
                        ready.append(child)
        for key in list(ready):
            node, request = state[key]["node"], state[key]["request"]
            model = node["model"]
            where = choose(model, config["models"][model]["gpus_required"])
            if where is None:
                continue
            ready.remove(key)
            took, switched = switch_time(where[0], model)
            old = held[where[0]]
            for gpu in where:
                busy[gpu], held[gpu] = True, model
            start = now + took
            end = start + node_time(request, node)
            if switched:
                lines.append(
                    f"Scheduling model switch on GPU(s) {where} from {old} to {model} (switch time: {took:.2f}s)"
                )
            lines.append(
                f"[{now:.2f}s] Scheduled node {key[1]} of request {key[0]} on GPU(s) {where}"
                f" (start: {start:.2f}s, end: {end:.2f}s)"
            )
            executions.append((key, where, state[key]["ready"], now, took, switched, start, end))
            heapq.heappush(heap, (end, serial, "node_complete", (key, where)))
            serial += 1
    lines.append(f"Simulation completed at time {max((row[-1] for row in executions), default=0.0):.2f}s")
    return lines, executions
