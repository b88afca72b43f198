"""Which treatments of a plan are compared: factors that always change together are one, by any of their names."""

from pathlib import Path

import pytest
import yaml
from shipped import SERVICES

from seamark.analysis.comparison.contrasts import contrasts_of, factors_of, family_of, in_family
from seamark.config.read import read_scenario, read_site
from seamark.model.scenario import Comparing
from seamark.planning.plan import plan

ROOT = Path(__file__).parents[2]
TIED = [{"delay_ms": 0.0, "reply_bytes": 2}, {"delay_ms": 1.0, "reply_bytes": 200}]


def planned(folder, **compare):
    workload = {"service": "null", "duration_s": 1, "warmup_s": 0, "include": TIED}
    document = {
        "scenario": "tied",
        "repetitions": 6,
        "restarts": "each",
        "workload": workload,
        **({"compare": compare} if compare else {}),
    }
    path = folder / "tied.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    services, site = SERVICES, read_site(ROOT / "config" / "sites" / "local.yaml")
    return plan(read_scenario(path, services, site), services, site)


@pytest.mark.covers("E-FR29")
@pytest.mark.parametrize("baseline", [{"delay_ms": 1.0}, {"reply_bytes": 200}])
def test_a_baseline_may_be_named_by_any_of_the_factors_that_change_together(tmp_path, baseline):
    made = planned(tmp_path)
    [plain] = contrasts_of(made, {})
    [turned] = contrasts_of(made, baseline)
    assert (turned.base, turned.new) == (plain.new, plain.base)
    assert turned.tied != ()


@pytest.mark.parametrize("name", ["delay_ms", "reply_bytes"])
def test_a_family_may_be_named_by_any_of_the_factors_that_change_together(tmp_path, name):
    made = planned(tmp_path, family=[name])
    contrasts = contrasts_of(made, {})
    assert in_family(contrasts[0], Comparing(family=(name,)), factors_of(contrasts))
    assert family_of(contrasts, made) == 1


def test_other_questions_are_compared_only_where_the_scenario_names_them(tmp_path):
    text = (ROOT / "config" / "scenarios" / "workflow_policies.yaml").read_text(encoding="utf-8")
    services, site = SERVICES, read_site(ROOT / "config" / "sites" / "local.yaml")
    found = []
    for family in ("[policy]", "[policy, generated_requests]"):
        path = tmp_path / "policies.yaml"
        path.write_text(text.replace("family: [policy]", f"family: {family}").replace("config/", f"{ROOT}/config/"))
        made = plan(read_scenario(path, services, site), services, site)
        found.append({contrast.factor for contrast in contrasts_of(made, {})})
    assert found == [{"policy"}, {"policy", "generated_requests"}]


@pytest.mark.covers("A1")
def test_a_party_alone_is_the_baseline_of_its_sets_at_every_level_of_the_others(tmp_path):
    text = """\
scenario: co
workload:
  duration_s: 1
  warmup_s: 0
  parties:
    search: {service: known, pattern: poisson, rate_rps: [20, 40]}
    ingest: {service: 'null', concurrency: 2}
"""
    (tmp_path / "co.yaml").write_text(text)
    site = read_site(ROOT / "config" / "sites" / "local.yaml")
    made = plan(read_scenario(tmp_path / "co.yaml", SERVICES, site), SERVICES, site)
    found = [one for one in contrasts_of(made, {}) if one.factor == "sets"]
    assert sorted((one.workload, str(one.base_level), str(one.new_level)) for one in found) == [
        *[("parties.ingest", "ingest", "search+ingest")] * 2,
        *[("parties.search", "search", "search+ingest")] * 2,
    ]
