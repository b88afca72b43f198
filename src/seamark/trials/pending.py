"""The trials of a deployment that are not measured yet. Measures nothing; asks neither batch system nor Snakemake."""

from seamark.model.results.load_record import LoadRecord
from seamark.model.server_identity import ServerIdentity
from seamark.model.trial import Trial
from seamark.planning.study import Study
from seamark.services.study_identities import server_identity
from seamark.storage.paths import TrialFolder, read
from seamark.trials.trial_files import put_aside, republished, settled


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
