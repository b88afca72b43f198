"""What of a deployment is not measured yet. Measures nothing; no batch system and no Snakemake is asked."""

from seamark.model.results.load_record import LoadRecord
from seamark.model.server_identity import ServerIdentity, belongs
from seamark.model.trial import Trial
from seamark.planning.study import Study
from seamark.services.study_identities import server_identity
from seamark.storage.paths import TrialFolder, read
from seamark.trials.trial import republished
from seamark.trials.trial_files import put_aside, stands

BROKEN_OFF = "interrupted"
"""Category of a load whose run was ended: nothing is known of its trial."""


def pending(study: Study, scenario: str, deployment_id: str, *, failed: bool = False) -> tuple[Trial, ...]:
    """Return the trials of a deployment that need its server, in the order of their positions.

    A trial whose samples are complete but whose load.json was lost gets it back. A failed trial is a result, as for
    `bench submit`; with `failed` its files are put aside, as by `bench retry`, and it is measured again. Raises
    UserError when the plan has no such deployment.
    """
    folder, deployment = study.folder(scenario), study.deployment(scenario, deployment_id)
    server = server_identity(study, scenario, deployment)
    trials = study.trials_of(scenario, deployment.id)
    return tuple(trial for trial in trials if _needs_server(folder.trial(trial.id), trial, server, failed))


def _needs_server(folder: TrialFolder, trial: Trial, server: ServerIdentity, failed: bool) -> bool:
    if not settled(folder, trial, server):
        return not republished(folder, trial, server)
    if failed and not read(folder.load, LoadRecord).ok:
        put_aside(folder)
        return True
    return False


def settled(folder: TrialFolder, trial: Trial, server: ServerIdentity | None = None) -> bool:
    """Whether load.json says, believably, what came of this very trial: on `server`, if that is given."""
    if not folder.load.exists() or not stands(folder):
        return False
    load = read(folder.load, LoadRecord)
    whose = load.config_hash is not None and belongs(load, trial.config_hash, server)
    return whose and load.category != BROKEN_OFF
