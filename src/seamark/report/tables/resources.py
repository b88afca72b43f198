"""Table of what each trial used: processors, memory, GPUs, disks, network, energy."""

from seamark.analysis.metrics.table import METRICS
from seamark.report.page.content import Column, Section, Table, column, figures, named
from seamark.report.source import Results

USED = {
    "resource.cpu_util": "CPU",
    "resource.server_cpu_util": "CPU, server",
    "resource.client_cpu_util": "CPU, load",
    "resource.cpu_iowait": "waits for I/O",
    "resource.ram_mb": "memory",
    "resource.server_rss_mb": "memory, server",
    "resource.client_rss_mb": "memory, load",
    "resource.gpu_util": "GPU",
    "resource.gpu_mem_mb": "GPU memory",
    "resource.disk_read_mb_per_s": "disk reads",
    "resource.disk_write_mb_per_s": "disk writes",
    "resource.server_net_received_mb_per_s": "server received",
    "resource.server_net_sent_mb_per_s": "server sent",
    "energy.value_j": "energy",
    "energy.power_w": "power",
    "energy.per_request_j": "energy a request",
}
"""Metric -> head of its column, which is there if a trial has it."""


def resources_section(results: Results, most: int = 400) -> Section | None:
    """Return a row for each trial with what was used in its measured window; None where nothing was observed."""
    known = {metric.path: metric for metric in METRICS}
    shown = [(view.trial.id, view.metrics) for view in results.trials if view.metrics is not None][:most]
    columns: list[Column] = []
    for path, head in USED.items():
        values = [metrics.figure(path) for _, metrics in shown]
        is_share = known[path].unit == "ratio"
        if any(value is not None for value in values):
            cells = [None if value is None else 100 * value if is_share else value for value in values]
            unit = "%" if is_share else known[path].unit
            columns.append(figures(head, cells, unit, known[path].meaning, why="not observed"))
    if not columns:
        return None
    if any(metrics.energy for _, metrics in shown):
        scopes = [metrics.energy.scope if metrics.energy else None for _, metrics in shown]
        columns.append(column("energy of", scopes, why="not observed"))
    trials = column("trial", named([trial for trial, _ in shown], results.names))
    return Section(id="resources", title="Resources", blocks=(Table(columns=(trials, *columns)),))
