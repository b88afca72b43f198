"""Checks of a workload of simulated workflows: its files fit each other, its GPUs, its arrivals and its draws."""

from collections.abc import Mapping

from seamark.config.levels import combinations
from seamark.config.yaml_source import Item, Mistakes
from seamark.errors import UserError
from seamark.model.scenario import Workload
from seamark.model.service import Service, Value
from seamark.patterns.trace_file import file_of
from seamark_simulate.config.machine_files import read_machine, require_speeds
from seamark_simulate.config.workflow_files import read_system, require_timestamps
from seamark_simulate.config.workloads.table import format_of, read_workload
from seamark_simulate.simulation.machine import Machine
from seamark_simulate.simulation.system import System
from seamark_simulate.simulation.workload import Requests, draws_times, misfit

NAMES = (
    "system_file",
    "requests_file",
    "generated_requests",
    "generated_workflow",
    "generated_nodes",
    "arrivals_rps",
    "arrivals_burstiness",
    "arrivals",
    "draw",
    "cluster_gpus",
    "machine",
)
"""Settings that have to fit each other, in the order in which mistakes are noted."""


def check_workflows(item: Item, workload: Workload, service: Service, repetitions: int, mistakes: Mistakes) -> None:
    """Note every mistake in the files of a workload, and every setting that they contradict, once."""
    settings = [setting for name in NAMES if (setting := service.setting(name))]
    if len(settings) < len(NAMES):
        return  # a recipe of the user's own with fewer settings
    if any(name in item.value and name not in workload.levels for name in NAMES):
        return
    checks = _Checks(item, workload, mistakes)
    for values in combinations(workload, settings):
        checks.check(values, repetitions)


class _Checks:
    """Notes mistakes of combinations of levels; the same one only once, and each file is read once."""

    def __init__(self, item: Item, workload: Workload, mistakes: Mistakes) -> None:
        self._item = item
        self._workload = workload
        self._mistakes = mistakes
        self._noted: set[str] = set()
        self._machines: dict[str, Machine | None] = {}
        self._read: dict[tuple[str | None, str | None], System | Requests | None] = {}

    def check(self, values: Mapping[str, Value], repetitions: int) -> None:
        """Note what is wrong with one combination."""
        requests, generated = values["requests_file"], values["generated_requests"]
        if (requests is None) == (generated is None):
            each = "are both set" if requests else "are both missing"
            at = "generated_requests" if requests else None
            self._note(
                at,
                f"requests_file and generated_requests {each}. Name a file, or set how many to generate.",
            )
            return
        for name in ("arrivals_rps", "arrivals_burstiness"):
            if values[name] is not None and (requests is not None or values["arrivals"] != "timestamps"):
                text = "has no effect here: it is for generated requests with 'arrivals: timestamps'. Remove it."
                self._note(name, text)
        if values["generated_workflow"] is not None and requests is not None:
            self._note("generated_workflow", "has no effect here: it is for generated requests. Remove it.")
        if values["generated_nodes"] is not None and values["generated_workflow"] is None:
            self._note("generated_nodes", "has no effect without generated_workflow. Set it, or remove this.")
        system_file = values["system_file"]
        if not self._fit(system_file, requests):
            return
        files = self._files(
            None if system_file is None else str(system_file), None if requests is None else str(requests)
        )
        if files is None:
            return
        system = files if isinstance(files, System) else files.system
        machine = self._machine(values, system)
        if machine is None:
            return
        found = None if isinstance(files, System) else files.fitting(machine)
        if values["arrivals"] == "timestamps":
            self._check_times(values, found)
        if values["generated_workflow"] is not None:
            self._check_models(machine, values, system, set(system.models))
            return
        used = set(system.workflows)
        if found is not None:
            used = {request.workflow for request in found.requests}
            drawn = bool(values["draw"]) and draws_times(system, found.requests)
            if repetitions > 1 and not drawn and not machine.may_fail:
                why = "requests give all node times, or models have no deviation. Add 'inference_time_std' to models."
                if not values["draw"]:
                    why = "no time is drawn. Set 'draw: true', or 'repetitions: 1'."
                self._note("draw", f"all {repetitions} repetitions would be the same: {why}")
        names = {node.model for name in used for node in system.workflows[name].nodes}
        self._check_models(machine, values, system, names)

    def _machine(self, values: Mapping[str, Value], system: System) -> Machine | None:
        """Return the machine of a combination, None after noting its mistakes, or where its file cannot be read
        here."""
        given, gpus = values["machine"], values["cluster_gpus"]
        if given is None:
            return Machine(gpus=gpus) if isinstance(gpus, int) else None
        if "cluster_gpus" in self._workload.levels:
            self._note("cluster_gpus", "machine and cluster_gpus are both set. The file says how many; remove this.")
            return None
        path = str(given)
        if path not in self._workload.contents:
            return None  # a missing file is noted already; `$NAME` may be known elsewhere
        if path not in self._machines:
            self._machines[path] = None
            try:
                self._machines[path] = read_machine(file_of(path))
            except UserError as error:
                self._note_lines(error)
        machine = self._machines[path]
        try:
            if machine is not None:
                require_speeds(path, machine, system)
        except UserError as error:
            self._note_lines(error)
        return machine

    def _fit(self, system_file: Value, requests: Value) -> bool:
        """Return whether the format of the requests fits the file of models, or its absence; note a misfit."""
        form = None if requests is None else format_of(file_of(str(requests)))
        if system_file is None and (form is None or form.models == "needed"):
            text = "system_file is missing: requests to workflows need the models of these."
            if form is not None:
                text = f"system_file is missing: a {form.name} has no models."
            self._note(None, f"{text} Name a file, such as config/clusters/system_config.yaml.")
            return False
        if system_file is not None and form is not None and form.models == "refused":
            self._note("system_file", f"has no effect here: a {form.name} has its own tasks. Remove it.")
            return False
        return True

    def _check_times(self, values: Mapping[str, Value], found: Requests | None) -> None:
        if found is None:
            if values["arrivals_rps"] is None:
                text = "generated requests have no time stamps. Set their rate, such as 'arrivals_rps: 0.1'."
                self._note("arrivals", text)
            return
        try:
            require_timestamps(found, file_of(str(values["requests_file"])))
        except UserError as error:
            for line in error.lines:
                self._note("arrivals", line)

    def _check_models(self, machine: Machine, values: Mapping[str, Value], system: System, names: set[str]) -> None:
        for model in system.models.values():
            if model.id not in names:
                continue
            why = misfit(model, machine)
            if why is not None and machine.layout is not None:
                self._note("machine", f"{values['machine']}: {why}, or leave out its requests.")
            elif why is not None:
                reason, _, remedy = why.partition(". ")
                remedy = remedy.replace(" GPUs or more", " or more")
                self._note(
                    "cluster_gpus", f"{machine.gpus} is too few: {reason}. {remedy}, or leave out its requests."
                )

    def _files(self, system: str | None, requests: str | None) -> System | Requests | None:
        """Return the content of files, None after noting their mistakes, or where they cannot be read here."""
        key = (system, requests)
        if key in self._read:
            return self._read[key]
        self._read[key] = None
        if any(path is not None and path not in self._workload.contents for path in key):
            return None  # a missing file is noted already; `$NAME` may be known elsewhere
        try:
            given = None if system is None else file_of(system)
            if requests is not None:
                self._read[key] = read_workload(given, file_of(requests))
            elif given is not None:
                self._read[key] = read_system(given)
        except UserError as error:
            self._note_lines(error)
        return self._read[key]

    def _note_lines(self, error: UserError) -> None:
        """Note mistakes of a file."""
        for mistake in error.mistakes:
            if str(mistake) not in self._noted:
                self._noted.add(str(mistake))
                self._mistakes.note(mistake)

    def _note(self, name: str | None, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._mistakes.add(self._item.value.get(name, self._item) if name else self._item, text)
