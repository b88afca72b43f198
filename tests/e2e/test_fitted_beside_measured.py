"""A study with measured trials of the reference server, a fit of them and its simulated twin, in one report."""

import json
import re

import pytest
from study_folder import StudyFolder

pytestmark = [pytest.mark.e2e, pytest.mark.serial, pytest.mark.sweep]

LOAD = {"pattern": "poisson", "rate_rps": [6, 10, 14], "duration_s": 3, "warmup_s": 0.3}
MEASURED = {"service": "known", "queue": "mm1", "ttft_ms": 40, "gen_tokens": 1, "concurrency": 256, **LOAD}
FIT = "results/try/known.fit.json"
SIMULATED = {"service": "fitted", "model_file": FIT, "extrapolate": True, **LOAD}
"""The range of a fit is that of its trials, whose seconds have more or fewer arrivals than their rates promise."""
ATTEMPTS = 2
"""Of a fit: one long stall of a busy machine is a contradiction, and hardly comes twice."""


def write(study: StudyFolder, seed: int, *workloads: dict[str, object]) -> None:
    document = {"scenario": "try", "repetitions": 2, "metadata": {"seed": seed}, "workloads": list(workloads)}
    (study.root / "config/scenarios/try.yaml").write_text(json.dumps(document))


def fitted(study: StudyFolder) -> int:
    """Measure the server and fit it; return the seed of a study whose fit is fit for plans."""
    for seed in range(1, ATTEMPTS + 1):
        write(study, seed, MEASURED)
        assert study.measure().returncode in (0, 1)
        done = study.bench("fit", "-c", "config/scenarios/try.yaml", "-o", FIT, "--servers", "1", code=0)
        if "UNFIT" not in done.stdout:
            return seed
        study.results.rename(study.root / "results" / f"contradicted{seed}")
    pytest.skip("the machine stalls so often that its trials contradict every model")


def tables(html: str) -> list[tuple[list[str], list[list[str]]]]:
    """Return the heads and rows of all tables of a page, as text."""

    def cells(row: str) -> list[str]:
        return [re.sub(r"<[^>]+>", "", each).strip() for each in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)]

    found = []
    for table in re.findall(r"<table.*?</table>", html, re.S):
        head, *rows = [cells(row) for row in re.findall(r"<tr.*?</tr>", table, re.S)]
        found.append((head, rows))
    return found


@pytest.mark.covers("C14", "E-FR12")
def test_measured_trials_their_fit_and_its_simulated_twin_stand_side_by_side_in_the_report(
    study: StudyFolder,
) -> None:
    seed = fitted(study)
    kept = {trial.name: (trial / "samples.parquet").read_bytes() for trial in study.trials()}
    write(study, seed, MEASURED, SIMULATED)
    done = study.submit()
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert {name: (study.results / name / "samples.parquet").read_bytes() for name in kept} == kept
    simulated = [trial for trial in study.trials() if trial.name not in kept]
    assert len(simulated) == 6
    for trial in simulated:
        metrics = study.json(f"{trial.name}/metrics.json")
        assert (metrics["origin"], metrics["status"]) == ("simulated", "ok")
    html = (study.root / "reports/try/index.html").read_text()
    found = tables(html)
    [held_out] = [rows for head, rows in found if any("in the interval" in each for each in head)]
    [table] = [text for text in re.findall(r"<table.*?</table>", html, re.S) if "in the interval" in text]
    trials = set(re.findall(r'<td[^>]*><span class="hint [^"]*" title="([^"]+)"', table)) & {
        trial.name for trial in study.trials()
    }
    assert len(trials) == len({row[0] for row in held_out}) > 0, "each has its id as tooltip"
    assert trials <= kept.keys(), "those of the fit, which are measured"
    assert {row[1] for row in held_out} <= {"inside", "beyond", "overload"}
    assert {row[1] for row in held_out if "rate_rps 10," in row[0]} <= {"inside"}, "between the loads of the others"
    assert {row[1] for row in held_out if "rate_rps 14," in row[0]} <= {"beyond", "overload"}
    [twins] = [rows for head, rows in found if head[0].startswith("treatment") and "predicted" in " ".join(head)]
    assert {row[0] for row in twins} == {"rate_rps 6", "rate_rps 10", "rate_rps 14"}
    figures = ("throughput", "offered", "TTFT", "verdict", "severity", "figure", "ratio")
    for head, _ in found:
        if any(each.startswith(figures) for each in head):
            assert {"origin", "measured"} & set(head), f"a table without the origin of its figures: {head}"
