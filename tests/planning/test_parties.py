"""Plans of workloads with parties: sets, names that stay, factors of each party, files and back."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shipped import SERVICES

from seamark.config.read import read_scenario, read_site
from seamark.errors import UserError
from seamark.model.service import External
from seamark.model.trial import Plan, Trial, levels_of, party_of, whole_of
from seamark.planning.plan import plan
from seamark.planning.plan_file import levels_in, read_trial, write_trials
from seamark.planning.study import Study
from seamark.storage.codec import decode, encode
from seamark.storage.paths import ScenarioFolder

ROOT = Path(__file__).parents[2]
LOCAL = read_site(ROOT / "config" / "sites" / "local.yaml")
SEARCH = "{service: known, pattern: poisson, rate_rps: [20, 40], ttft_ms: 2, slos: ['latency_p99_s <= 0.1']}"
INGEST = "{service: 'null', concurrency: 2}"


def text_of(search: str = SEARCH, ingest: str = INGEST, more: str = "", repetitions: int = 1) -> str:
    """Return a scenario of two parties, with further lines of the workload."""
    return (
        f"scenario: co\nrepetitions: {repetitions}\nworkload:\n  duration_s: 10\n  warmup_s: 2\n{more}"
        f"  parties:\n    search: {search}\n    ingest: {ingest}\n"
    )


@pytest.fixture
def planned(tmp_path: Path) -> Any:
    def made(**parts: Any) -> Plan:
        path = tmp_path / "co.yaml"
        path.write_text(text_of(**parts), encoding="utf-8")
        return plan(read_scenario(path, SERVICES, LOCAL), SERVICES, LOCAL)

    return made


def test_what_has_figures_lies_in_the_folder_of_the_trial_or_in_those_of_its_parties(planned, tmp_path):
    folder = ScenarioFolder(root=tmp_path)
    for trial in planned().trials:
        assert folder.trial(trial.id).measured(trial) == [(folder.trial(one.id), one) for one in trial.parties]
        for party in trial.parties:
            assert folder.trial(party.id).measured(party) == [(folder.trial(party.id), party)]


def sets_of(found: Plan) -> list[str]:
    return sorted({str(trial.settings["sets"]) for trial in found.trials})


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("all, [cpu], [disk]", ["cpu", "disk", "search+ingest"]),
        ("pairs, burners", ["ingest+cpu", "ingest+disk", "search+cpu", "search+disk", "search+ingest"]),
        ("alone, all", ["cpu", "disk", "ingest", "search", "search+ingest"]),
    ],
)
def test_words_for_sets_leave_burners_out_unless_they_ask_for_them(planned, words, expected):
    burners = "    cpu: {service: burner}\n    disk: {service: burner, resource: disk}\n"
    found = planned(search=INGEST, ingest=f"{INGEST}\n{burners}", more=f"  sets: [{words}]\n")
    assert sets_of(found) == expected


def alone(found: Plan, party: str) -> Mapping[str, str]:
    """Return the config hashes of the trials in which one party alone is under load, by their ids."""
    return {trial.id: trial.config_hash for trial in found.trials if trial.settings["sets"] == party}


def together(found: Plan) -> tuple[Trial, ...]:
    return tuple(trial for trial in found.trials if len(trial.parties) > 1)


def test_by_default_each_party_is_alone_and_then_all_are_together(planned):
    found = planned()
    assert sets_of(found) == ["ingest", "search", "search+ingest"]
    # two rates of search alone, ingest once, two rates together
    assert len(found.trials) == 5
    assert {len(trial.parties) for trial in found.trials} == {1, 2}
    assert len(found.measured) == 7


@pytest.mark.parametrize("sets", ["[alone, all]", "[alone, pairs]", "[[search], ingest, all]"])
def test_a_word_stands_for_all_sets_of_a_size(planned, sets):
    assert sets_of(planned(more=f"  sets: {sets}\n")) == ["ingest", "search", "search+ingest"]
    assert sets_of(planned(more="  sets: all\n")) == ["search+ingest"]


def test_sets_say_who_is_under_load_and_the_others_stand_idle(planned):
    found = planned(more="  sets: [[ingest, search], [search]]\n")
    assert sets_of(found) == ["search", "search+ingest"]
    for trial in found.trials:
        assert "+".join(str(party.party) for party in trial.parties) == trial.settings["sets"]
    (deployment,) = found.deployments
    assert [member.id for member in deployment.members] == [f"{deployment.id}@search", f"{deployment.id}@ingest"]
    assert [member.service for member in found.served] == ["known", "null"]


def test_a_party_alone_is_measured_once_however_the_load_of_the_other_varies(planned):
    first = planned()
    more = planned(ingest="{service: 'null', concurrency: [2, 4, 8]}")
    assert alone(more, "search") == alone(first, "search")
    assert len(alone(more, "ingest")) == 3
    assert len(together(more)) == 6
    for ingest in ("{service: 'null', concurrency: 9}", "{service: 'null', pattern: constant, rate_rps: 5}"):
        other = planned(ingest=ingest)
        assert alone(other, "search") == alone(first, "search")
        assert not alone(other, "ingest").keys() & alone(first, "ingest").keys()
        assert not {each.id for each in together(other)} & {each.id for each in together(first)}


def test_a_party_alone_is_another_when_a_server_beside_it_is(planned):
    """The idle server of the other party belongs to what is measured, so its settings are in all names."""
    name = next(
        each.name for each in SERVICES["postgres"].settings if each.role == "deployment" and each.type == "int"
    )
    levels = SERVICES["postgres"].setting(name)
    assert levels is not None
    value = int(levels.default or 1) * 2
    first = planned(ingest="{service: postgres}")
    other = planned(ingest=f"{{service: postgres, {name}: {value}}}")
    service = planned()
    hashes = [set(alone(each, "search").items()) for each in (first, other, service)]
    assert all(hashes)
    assert not hashes[0] & hashes[1]
    assert not hashes[0] & hashes[2]
    assert first.deployments[0].id != other.deployments[0].id


def test_what_stands_beside_parties_is_shared_by_those_without_their_own(planned):
    found = planned(ingest="{service: 'null', duration_s: 4}")
    for party in found.measured:
        assert party.settings["warmup_s"] == 2
        assert party.settings["duration_s"] == (10 if party.party == "search" else 4)
        assert "sets" not in party.settings


def test_factors_of_parties_and_of_the_whole_are_listed_by_role(planned):
    found = planned(more="  placement: [shared, split]\n", ingest="{service: 'null', concurrency: [1, 2]}")
    assert found.factors == {
        "deployment": {"placement": ("shared", "split")},
        "workload": {
            "sets": ("search", "ingest", "search+ingest"),
            "search.rate_rps": (20.0, 40.0),
            "ingest.concurrency": (1, 2),
        },
    }
    assert len(found.deployments) == 2, "a placement is that of the servers"
    assert {deployment.placement for deployment in found.deployments} == {"shared", "split"}


def test_the_levels_of_a_party_are_its_own_and_those_of_the_others_that_are_under_load(planned):
    found = planned(ingest="{service: 'null', concurrency: [1, 2]}")
    levels = levels_of(found)
    for trial in found.trials:
        loaded = {str(party.party) for party in trial.parties}
        for party in trial.parties:
            own = levels[party.treatment]
            assert own["sets"] == trial.settings["sets"]
            if party.party == "search":
                assert own == {
                    "rate_rps": party.settings["rate_rps"],
                    "sets": own["sets"],
                    "ingest.concurrency": trial.settings["ingest.concurrency"] if "ingest" in loaded else None,
                }
            else:
                assert own == {
                    "concurrency": party.settings["concurrency"],
                    "sets": own["sets"],
                    "search.rate_rps": trial.settings["search.rate_rps"] if "search" in loaded else None,
                }


def test_every_party_has_a_seed_group_objectives_and_name_of_its_own(planned):
    found = planned(repetitions=2)
    assert len({party.seed for party in found.measured}) == len(found.measured)
    assert len({party.trial_id for party in found.measured}) == len(found.measured)
    for trial in found.trials:
        assert trial.slos == ()
        for party in trial.parties:
            assert (party_of(party.id), whole_of(party.id)) == (party.party, trial.id)
            assert party.group == f"parties.{party.party}"
            assert len(party.slos) == (1 if party.party == "search" else 0)
            assert party.deployment == f"{trial.deployment}@{party.party}"
            assert (party.repetition, party.position) == (trial.repetition, trial.position)
            assert party.config_hash == trial.config_hash


def test_a_plan_with_parties_is_the_same_after_it_was_written_and_read(planned):
    found = planned(more="  keep_busy: true\n")
    assert all(trial.keep_busy for trial in found.trials)
    assert decode(encode(found), Plan) == found


def test_the_trial_json_of_a_trial_has_its_parties_and_members(planned, tmp_path):
    found = planned()
    folder = ScenarioFolder(root=tmp_path / "results" / "co")
    write_trials(found, folder)
    for trial in found.trials:
        part = read_trial(folder.trial(trial.id), trial.config_hash)
        assert part is not None
        assert (part.trials, part.deployments) == ((trial,), found.deployments)
        assert levels_in(part)["sets"] == trial.settings["sets"]


def test_a_study_knows_parties_and_members_by_their_ids(tmp_path):
    path = tmp_path / "config" / "scenarios" / "co.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text_of(), encoding="utf-8")
    study = Study.at(tmp_path, scenario=str(path.relative_to(tmp_path)), site="local")
    for trial in study.plan.trials:
        assert study.trial("co", trial.id) == trial
        for party in trial.parties:
            assert study.trial("co", party.id) == party
            member = study.deployment("co", party.deployment)
            assert (member.service, member.whole) == (party.service, trial.deployment)
            assert party in study.trials_of("co", member.id)
    for whole in study.plan.deployments:
        assert study.deployment("co", whole.id) == whole
        assert {trial.id for trial in study.trials_of("co", whole.id)} == {trial.id for trial in study.plan.trials}


OUTSIDE = "{service: known, external: {address: '127.0.0.1:1', ports: {main: 2}}}"


def test_a_party_names_its_image_or_the_server_that_runs_already(planned):
    found = planned(search=OUTSIDE, ingest="{service: 'null', container: x.sif}")
    named = {member.id.partition("@")[2]: (member.container, member.external) for member in found.served}
    assert named == {
        "search": (None, External(address="127.0.0.1:1", ports={"main": 2})),
        "ingest": ("x.sif", None),
    }
    assert decode(encode(found), Plan) == found
    others = [
        planned(search=OUTSIDE.replace("1:1", "1:3"), ingest="{service: 'null', container: x.sif}"),
        planned(search=OUTSIDE, ingest="{service: 'null', container: y.sif}"),
    ]
    for other in others:
        assert found.deployments[0].id != other.deployments[0].id
        assert not set(alone(found, "search").values()) & set(alone(other, "search").values())


def test_parties_on_several_nodes_have_them_all_and_a_load_of_their_own(tmp_path):
    path = tmp_path / "co.yaml"
    path.write_text(text_of() + "resources: {nodes: 2}\n", encoding="utf-8")
    found = plan(read_scenario(path, SERVICES, LOCAL), SERVICES, LOCAL)
    assert [member.nodes for member in found.served] == [2, 2]


def test_gpus_of_parties_on_several_nodes_are_counted_on_each_node(planned):
    ingest = "{service: 'null', gpus: 1}\nresources: {nodes: 2, gpus: 4}"
    found = planned(search="{service: known, gpus: 1}", ingest=ingest)
    assert [(member.nodes, member.gpus) for member in found.served] == [(2, 1), (2, 1)]


def hashes(found: Plan) -> dict[str, str]:
    return {trial.id: trial.config_hash for trial in found.trials}


def test_how_gpus_are_shared_is_part_of_identity_where_it_is_stated(planned):
    parts = {"search": "{service: known, gpus: 1}", "ingest": "{service: 'null', gpus: 1}\nresources: {gpus: 2}"}
    first = planned(**parts)
    assert hashes(planned(**parts, more="  gpu_sharing: null\n")) == hashes(first)
    stated = planned(**parts, more="  gpu_sharing: [exclusive, {mps: {threads: 50}}, {mig: 3g.20gb}, {mps: {}}]\n")
    levels = ("exclusive", "mps:50", "mig:3g.20gb", "mps:100")
    assert stated.factors["deployment"] == {"gpu_sharing": levels}
    assert len(hashes(stated)) == 4 * len(hashes(first))
    assert not {*hashes(stated).values()} & {*hashes(first).values()}


def test_parties_that_have_gpus_in_common_need_no_more_than_one_of_them(planned):
    parts = {"search": "{service: known, gpus: 1}", "ingest": "{service: 'null', gpus: 1}\nresources: {gpus: 1}"}
    assert len(planned(**parts, more="  gpu_sharing: [time_sliced, {mps: {threads: 50}}]\n").deployments) == 2
    with pytest.raises(UserError) as raised:
        planned(**parts, more="  gpu_sharing: [time_sliced, exclusive]\n")
    assert [mistake.path for mistake in raised.value.mistakes] == ["workload.parties"]


def test_servers_in_containers_have_no_mps(tmp_path):
    path = tmp_path / "co.yaml"
    text = text_of(search="{service: known, gpus: 1}", more="  gpu_sharing: {mps: {threads: 50}}\n")
    path.write_text(f"{text}resources: {{gpus: 1}}\n", encoding="utf-8")
    with pytest.raises(UserError) as raised:
        plan(read_scenario(path, SERVICES, LOCAL), SERVICES, replace(LOCAL, runtime="apptainer"))
    assert ("conflict", "workload.gpu_sharing") in [(one.code, one.path) for one in raised.value.mistakes]


def test_lanes_do_not_load_a_server_that_runs_already_at_the_same_time(tmp_path):
    path = tmp_path / "co.yaml"
    path.write_text(text_of(search=OUTSIDE), encoding="utf-8")
    with pytest.raises(UserError) as raised:
        plan(read_scenario(path, SERVICES, LOCAL), SERVICES, replace(LOCAL, parallel=2))
    [mistake] = raised.value.mistakes
    assert (mistake.code, mistake.line, mistake.path) == ("conflict", 7, "workload.parties.search")


def test_a_wrong_address_of_a_party_is_named_at_its_line(tmp_path):
    path = tmp_path / "config" / "scenarios" / "co.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text_of(ingest="{service: 'null', external: {address: 'https://a'}}"), encoding="utf-8")
    with pytest.raises(UserError) as raised:
        Study.at(tmp_path, scenario=str(path.relative_to(tmp_path)), site="local").require_drivers()
    places = [(mistake.line, mistake.path) for mistake in raised.value.mistakes]
    assert places == [(8, "workload.parties.ingest.external.address")]
