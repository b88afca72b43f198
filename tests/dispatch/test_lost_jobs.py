"""Why Slurm took no job, with what helps: by what sbatch really says."""

import pytest

from seamark.dispatch.slurm.lost_jobs import refused

FAILED = "sbatch: error: Batch job submission failed: "
SAID = {
    f"{FAILED}Invalid account or account/partition combination specified": "'account'",
    f"{FAILED}Invalid qos specification": "QoS",
    f"sbatch: error: invalid partition specified: gpus {FAILED}Invalid partition name specified": "'partition'",
    f"{FAILED}Requested time limit is invalid (missing or exceeds some limit)": "run",
    f"{FAILED}Requested node configuration is not available": "sinfo -N",
    f"sbatch: error: QOSMaxSubmitJobPerUserLimit {FAILED}Job violates accounting/QOS policy (job submit limit, user's"
    " size and/or time limits)": "'max_submit'",
    f"{FAILED}Unspecified error": "'job_options'",
}


@pytest.mark.covers("E-VAL", "E-MLX01")
@pytest.mark.parametrize("said", SAID)
def test_a_refusal_says_what_helps(said: str) -> None:
    (line,) = refused([said])
    assert line.startswith("Slurm refuses a job: ")
    assert "sbatch" not in line
    remedy = line.split(". ", 1)[1]
    assert SAID[said] in remedy
