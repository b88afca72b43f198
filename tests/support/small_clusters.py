"""Small clusters and workloads that a test writes out, and what a policy makes of them."""

from seamark_simulate.simulation.machine import GpuKind, Host, Layout, Machine
from seamark_simulate.simulation.policies.table import POLICIES
from seamark_simulate.simulation.system import Edge, Model, Request, System, Workflow, WorkflowNode
from seamark_simulate.simulation.virtual_world import run_policy
from seamark_simulate.simulation.workload import workload_of

KIND = GpuKind(name="k", memory_gb=40.0)


def machine(*hosts, kind=KIND, **settings):
    """Return a machine of hosts with so many GPUs each."""
    made = tuple(Host(name=f"h{i}", kind=kind, gpus=gpus, network_gb_per_s=1.0) for i, gpus in enumerate(hosts))
    return Machine(gpus=sum(hosts), layout=Layout(hosts=made, **settings))


def model(name, memory_gb=0.0, gpus=1, load_s=0.0, fetched=False):
    """Return a model; without `fetched` its fetches take no time."""
    return Model(id=name, memory_gb=memory_gb, gpus_required=gpus, load_time_s=load_s, fetched=fetched)


def work_of(*requests, models=(), edges=()):
    """Return the work of requests: (time, {node: (model, time)}, settings). All have the same edges, as far as they
    have the nodes."""
    models = models or [model("a")]
    workflows, asked = {}, []
    for number, (at_s, nodes, settings) in enumerate(requests):
        name = f"w{number}"
        workflows[name] = Workflow(
            id=name,
            nodes=tuple(WorkflowNode(id=node, model=used) for node, (used, _) in nodes.items()),
            edges=tuple(Edge(source=a, target=b) for a, b in edges if {a, b} <= nodes.keys()),
        )
        times_s = {node: float(time_s) for node, (_, time_s) in nodes.items()}
        asked.append(Request(id=f"r{number}", workflow=name, at_s=at_s, node_execution_times_s=times_s, **settings))
    system = System(models={each.id: each for each in models}, workflows=workflows)
    return workload_of(system, asked, "timestamps")


def ran(work, cluster, policy="baseline", seed=0):
    """Return the schedule of a policy."""
    form = POLICIES[policy]
    return run_policy(work, cluster, form.make, instants=form.instants, seed=seed)


def times_of(schedule):
    """Return (taken, end) of each node's last execution, by node."""
    rows = zip(schedule.node.tolist(), schedule.taken_s.tolist(), schedule.end_s.tolist(), strict=True)
    return {node: (taken_s, end_s) for node, taken_s, end_s in rows}
