"""What a check looks at: a trial with figures. No check here."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps

from seamark.analysis.metrics.metric_inputs import is_simulated_load
from seamark.analysis.metrics.processors import Processors
from seamark.analysis.metrics.window_counts import WindowCounts
from seamark.model.results.answers import AnswersRecord
from seamark.model.results.calibration import WireCeiling
from seamark.model.results.load_record import LoadRecord
from seamark.model.results.trial_metrics import Severity, TrialMetrics, VerdictReason
from seamark.model.service import LoadKind
from seamark.model.trial import Trial


@dataclass(frozen=True, kw_only=True)
class CheckedTrial:
    """A trial with figures: what was asked for (`trial`), how its load went (`load`) and what it measured (`metrics`,
    with objectives judged, without a verdict). The rest is in none of these.

    `counts` are those of its samples. `processors` is the use of each node; `others_unknown`: why that by others is
    not known. `client_is_server`: the service runs inside the client, as file I/O does. `ceiling` is the client's own
    limit, `gpu_hz` the highest clock of the GPUs, `answers` says how its replies were scored; None: not known.
    """

    trial: Trial
    load: LoadRecord
    metrics: TrialMetrics
    counts: WindowCounts
    processors: tuple[Processors, ...] = ()
    others_unknown: str | None = None
    client_is_server: bool = False
    ceiling: WireCeiling | None = None
    gpu_hz: float | None = None
    answers: AnswersRecord | None = None

    @property
    def kind(self) -> str:
        """The kind of its load; an open load of a simulation is judged as one of requests."""
        return "requests" if is_simulated_load(self.trial.load, self.load) else self.load.kind


Check = Callable[[CheckedTrial], VerdictReason | None]


Finding = str | tuple[Severity, str] | None
"""What is wrong, None for nothing; of a check with several severities with its own."""


def check(
    severity: Severity | tuple[Severity, ...], remedy: str, *kinds: LoadKind
) -> Callable[[Callable[[CheckedTrial], Finding]], Check]:
    """Make a check of a function that says what is wrong; its name is the code of the reason.

    With `kinds` it looks at these kinds of load alone: a finite load has no steady state, and ends with few users; a
    program is no sample of many.
    """

    severities: tuple[Severity, ...] = (severity,) if isinstance(severity, str) else severity

    def make(says: Callable[[CheckedTrial], Finding]) -> Check:
        @wraps(says)
        def judged(view: CheckedTrial) -> VerdictReason | None:
            finding = says(view) if not kinds or view.kind in kinds else None
            if finding is None:
                return None
            grade, text = finding if isinstance(finding, tuple) else (severities[0], finding)
            return VerdictReason(code=says.__name__, severity=grade, text=text, remedy=remedy)

        return judged

    return make
