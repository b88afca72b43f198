"""Driver of the service `fitted`: requests to a station or to LLM replicas of a fitted model, recorded as a trial."""

from collections import Counter
from threading import Event

from seamark.load.driver import Target, Task, TaskFailure, TaskRecorder
from seamark_simulate.config.fitted_load import FittedLoad
from seamark_simulate.model.fitted_model import StationModel
from seamark_simulate.simulation.fitted_service import outside, serve_fitted
from seamark_simulate.simulation.schedule import whole_ns


class SimulatedService(Task):
    """One simulation. A sample is a request: due and sent at its arrival, as by a client that is never late; its
    first part is the first token of a language model, its units are tokens (of a station 1)."""

    unit = "token"
    kinds = ("request",)

    def __init__(self, target: Target) -> None:
        self._load = FittedLoad(settings=target.settings)
        if isinstance(self._load.service.model, StationModel):
            self.unit = "reply"

    def run(self, recorder: TaskRecorder, stop: Event) -> None:
        """Simulate and record requests and figures. Raises UserError and ValueError for wrong files."""
        load = self._load
        requests = load.requests(recorder.arrivals_seed)
        if not len(requests):
            raise TaskFailure("no_samples", "no request is due before the end of the load")
        served = serve_fitted(load.service, requests, recorder.seed, draw=bool(load.settings["draw"]))
        due, last = whole_ns(requests.arrival_s), whole_ns(served.last_s)
        first = [None] * len(due) if served.first_s is None else whole_ns(served.first_s)
        rows = zip(due, first, last, served.units.tolist(), strict=True)
        for index, (due_ns, first_ns, last_ns, units) in enumerate(rows):
            if stop.is_set():
                return
            recorder.sample(index, due_ns=due_ns, sent_ns=due_ns, first_ns=first_ns, last_ns=last_ns, units=units)
        recorder.ran_out = load.ran_out
        counted = requests.arrival_s >= load.warmup_s
        if counted.any():
            recorder.quality("waiting_mean_s", float(served.waiting_s[counted].mean()))
        recorder.quality("preemptions", served.preemptions)
        for name, value in outside(load.service, requests, load.rate_rps(requests.arrival_s)).items():
            recorder.quality(f"extrapolated_{name}", value)
        for code, count in Counter(code for source in load.service.model.sources for code in source.suspect).items():
            recorder.quality(f"suspect_sources_{code}", count)
