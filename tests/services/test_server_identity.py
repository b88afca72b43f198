"""What a trial is measured on, as a value: what changes it, what does not, and that no secret is in it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from seamark.errors import SiteError
from seamark.model.server_identity import ServerRecord, differences, same_server
from seamark.planning.study import Study
from seamark.services.images.study_images import StudyImages
from seamark.services.runtimes.environments import missing_environments
from seamark.services.server_identity import server_identities
from seamark.storage.codec import encode
from seamark.storage.redaction import masked_address, masked_command, masked_variables

ROOT = Path(__file__).resolve().parents[2]
SLURM = {"profile": "slurm", "partitions": {"gpu": {"nodes": 2, "cpus": 64, "mem_gb": 256, "gpus": 4}}}


def make_study(
    root: Path, *, site: dict[str, object] | None = None, service: str = "null", **recipe: object
) -> Study:
    """Return a study with the site `mine` and a scenario of one service; `recipe` changes the server of that."""
    if not root.exists():
        for name in ("config", "envs", "containers"):
            shutil.copytree(ROOT / name, root / name)
    (root / "config/sites/mine.yaml").write_text(
        yaml.safe_dump({"name": "mine", "summary": "for tests"} | (site or {}), sort_keys=False)
    )
    path = root / "config/services" / f"{service}.yaml"
    document = yaml.safe_load(path.read_text())
    document["server"] |= recipe
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    asked = {"partition": "gpu", "account": "p1"} if site and "partitions" in site else {}
    scenario = {"scenario": "try", **asked, "workload": {"service": service}}
    (root / "config/scenarios/try.yaml").write_text(yaml.safe_dump(scenario, sort_keys=False))
    return Study.at(root, scenario="config/scenarios/try.yaml", site="mine")


def identity(study: Study) -> ServerRecord:
    [found] = server_identities(study, "try").values()
    return found


def command_of(service: str) -> list[str]:
    return list(yaml.safe_load((ROOT / "config/services" / f"{service}.yaml").read_text())["server"]["command"])


CHANGES: dict[str, Callable[[Path], Study]] = {
    "another command": lambda root: make_study(root, command=[*command_of("null"), "--delay-ms=1"]),
    "another variable": lambda root: make_study(root, environment={"OMP_NUM_THREADS": "1"}),
    "another setup": lambda root: make_study(root, setup=[["true"]]),
    "another runtime": lambda root: make_study(root, site={"runtime": "external", "address": "127.0.0.1:1"}),
    "another machine": lambda root: make_study(root, site={"machine": "elsewhere"}),
    "other cores": lambda root: make_study(root, site={"pinning": "none"}),
}


@pytest.mark.covers("E-NFR01")
@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_the_server_changes_its_identity_and_no_name_of_a_trial(tmp_path: Path, change: str) -> None:
    before = make_study(tmp_path / "a")
    after = CHANGES[change](tmp_path / "b")
    assert identity(before).digest != identity(after).digest
    assert not same_server(identity(before).brief(), identity(after))
    names = [[(t.id, t.trial_id, t.config_hash, t.seed) for t in study.plan.trials] for study in (before, after)]
    assert names[0] == names[1]


def test_another_address_lock_or_partition_is_another_server(tmp_path: Path) -> None:
    external = {"runtime": "external", "address": "127.0.0.1:1"}
    one, other = (
        identity(make_study(tmp_path / "a", site=external | {"address": address}))
        for address in ("127.0.0.1:1", "127.0.0.1:2")
    )
    assert differences(vars(one), vars(other)) == ["address: 127.0.0.1:1 -> 127.0.0.1:2"]
    study = make_study(tmp_path / "b", service="postgres")
    before = identity(study)
    with (study.root / "envs/postgres.lock").open("a") as lock:
        lock.write("# another wheel\n")
    assert before.lock_sha256 != identity(study).lock_sha256
    assert not same_server(before.brief(), identity(study))
    batch = make_study(tmp_path / "c", site=SLURM)
    elsewhere = identity(batch).changed(partition="cpu")
    assert not same_server(identity(batch).brief(), elsewhere)


def test_a_recipe_of_a_server_that_others_start_is_not_a_part_of_what_it_is(tmp_path: Path) -> None:
    external = {"runtime": "external", "address": "127.0.0.1:1"}
    before = identity(make_study(tmp_path / "a", site=external))
    edited = identity(make_study(tmp_path / "a", site=external, command=["true"], environment={"A": "1"}))
    assert before == edited


@pytest.mark.covers("E-NFR06")
def test_paths_of_a_user_and_a_moved_study_leave_the_identity_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = {"scratch": "$HOME/scratch", "environments": "$HOME/envs"}
    monkeypatch.setenv("HOME", "/home/anna")
    anna = identity(make_study(tmp_path / "anna", site={"paths": paths}, environment={"CACHE": "$HOME/cache"}))
    monkeypatch.setenv("HOME", "/home/ben")
    ben = identity(make_study(tmp_path / "ben", site={"paths": paths | {"results": str(tmp_path / "r")}}))
    (tmp_path / "ben").rename(tmp_path / "moved")
    moved = make_study(tmp_path / "moved", site={"paths": paths}, environment={"CACHE": "$HOME/cache"})
    assert ben.digest != anna.digest, "the recipe differs"
    assert identity(moved) == anna
    assert str(tmp_path) not in json.dumps(encode(identity(moved)))


@pytest.mark.covers("E-MR01")
def test_every_node_of_a_cluster_gives_the_identity_of_the_login_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = make_study(tmp_path / "s", site=SLURM)
    monkeypatch.setattr("socket.gethostname", lambda: "login01")
    login = identity(study)
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_CLUSTER_NAME": "far", "SLURMD_NODENAME": "n2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("socket.gethostname", lambda: "n2")
    assert identity(study) == login
    assert (login.machine, login.partition) == ("mine", "gpu")
    local = make_study(tmp_path / "s")
    assert identity(local).machine == "far", "an allocation of a cluster is that cluster"
    monkeypatch.delenv("SLURM_JOB_ID")
    assert identity(local).machine == "n2"


def test_an_identity_that_gains_a_field_with_nothing_in_it_keeps_its_digest(tmp_path: Path) -> None:
    found = identity(make_study(tmp_path / "s"))
    assert not {"standing", "partition", "address", "image_digests"} & {
        name for name, part in vars(found).items() if part
    }
    assert found.changed(standing="", site_settings={}).digest == found.digest


def test_digests_of_images_count_where_both_are_known() -> None:
    asked = ServerRecord.of(
        runtime="apptainer", site="s", machine="m", service="vllm", version="1", driver="a:B",
        image_digests={"server": "sha256:1"},
    )  # fmt: skip
    assert same_server(asked.brief(), asked.changed(image_digests={"server": None}))
    assert same_server(asked.changed(image_digests={}).brief(), asked)
    assert not same_server(asked.brief(), asked.changed(image_digests={"server": "sha256:2"}))


@pytest.mark.parametrize("known", [None, ServerRecord(digest="x")])
def test_an_identity_that_was_not_recorded_is_that_of_any_server_and_another_one_of_none(
    tmp_path: Path, known: ServerRecord | None
) -> None:
    assert same_server(known, identity(make_study(tmp_path / "s"))) is (known is None)


@pytest.mark.covers("D4", "E-SEC")
def test_no_secret_of_a_recipe_or_address_is_written_down(tmp_path: Path) -> None:
    command = [*command_of("null"), "--api-key=hush1", "--password", "hush2", "--max-tokens=5", "sh", "-c"]
    command += ["PGPASSWORD=hush3 true http://me:hush4@host/x"]
    variables = {"HF_TOKEN": "hush5", "AWS_SECRET_ACCESS_KEY": "hush6", "THREADS": "4", "DB": "pg://u:hush7@h/d"}
    document = identity(make_study(tmp_path / "s", command=command, environment=variables))
    text = json.dumps(encode(document))
    assert "hush" not in text
    assert "--max-tokens=5" in text
    assert (document.recipe or {})["environment"]["THREADS"] == "4"
    address = identity(make_study(tmp_path / "e", site={"runtime": "external", "address": "me:hush@host:1"}))
    assert "hush" not in json.dumps(encode(address))


def test_values_of_secrets_are_hidden_and_nothing_else() -> None:
    assert masked_command(["a", "--token", "x", "y", "--token=x", "--n=1"]) == [
        *("a", "--token", "***", "y", "--token=***", "--n=1"),
    ]
    assert masked_variables({"A_SECRET": "x", "B": "y"}) == {"A_SECRET": "***", "B": "y"}
    assert masked_address("user:word@host:1") == "***@host:1"
    flags = ["--max-tokens=5", "--tokenizer", "a", "--key-file=b", "--api-key", "c"]
    assert masked_command(flags) == [*flags[:-1], "***"]


def test_a_place_and_a_difference_are_said_in_the_words_of_site_and_recipe(tmp_path: Path) -> None:
    external = identity(make_study(tmp_path / "a", site={"runtime": "external", "address": "h:1", "machine": "m"}))
    assert external.brief().place == "h:1 (external, site 'mine', from m)"
    before = identity(make_study(tmp_path / "b", site={"machine": "m"}))
    assert before.brief().place == "site 'mine' (venv, on m)"
    after = identity(make_study(tmp_path / "b", site={"machine": "m"}, command=[*command_of("null"), "--delay-ms=1"]))
    assert differences(vars(before), vars(after)) == ["recipe.command: nothing -> --delay-ms=1"]
    assert (
        identity(make_study(tmp_path / "c", site=SLURM)).brief().place == "site 'mine' (venv, on mine, partition gpu)"
    )


def with_parties(root: Path, site: dict[str, object], **parties: dict[str, object]) -> Study:
    """Return a study of some parties at the site `mine`, whose environments are in the study."""
    make_study(root, site=site | {"paths": {"environments": str(root / "environments")}})
    scenario = {"scenario": "try", "workload": {"parties": parties}}
    (root / "config/scenarios/try.yaml").write_text(yaml.safe_dump(scenario, sort_keys=False))
    return Study.at(root, scenario="config/scenarios/try.yaml", site="mine")


OUTSIDE: dict[str, object] = {"service": "vllm", "external": {"address": "127.0.0.1:1"}}


@pytest.mark.covers("E-NFR01", "E-FR13")
def test_members_have_images_and_addresses_of_their_own_and_all_of_them_are_the_server(tmp_path: Path) -> None:
    store = {"service": "postgres", "container": str(tmp_path / "x.sif")}
    study = with_parties(tmp_path / "a", {"runtime": "apptainer"}, chat=OUTSIDE, store=store)
    assert [image.path.name for image in StudyImages(study=study).required()] == ["x.sif"]
    found = identity(study)
    assert (found.runtime, found.address) == ("apptainer", "127.0.0.1:1")
    assert found.image_digests == {"store.server": None}
    assert found.recipe is not None
    assert found.recipe["chat"]["address"] == "127.0.0.1:1"
    assert found.recipe["store"]["recipe"]["container"]["scenario"] == store["container"]
    other = with_parties(
        tmp_path / "b", {"runtime": "apptainer"}, chat=OUTSIDE, store=store | {"container": str(tmp_path / "y.sif")}
    )
    assert found.digest != identity(other).digest


def test_a_party_beside_a_server_that_runs_already_installs_no_more_than_its_load_needs(tmp_path: Path) -> None:
    study = with_parties(tmp_path / "a", {}, chat=OUTSIDE, store={"service": "postgres"})
    assert missing_environments(study) == ("postgres",)


def test_whole_jobs_of_parties_have_one_image_or_are_refused(tmp_path: Path) -> None:
    jobs: dict[str, object] = {"images": {"jobs": True}}
    one = with_parties(tmp_path / "a", jobs, store={"service": "postgres"}, other={"service": "null"})
    assert {image.environment for image in StudyImages(study=one).required()} == {None, "postgres"}
    several = with_parties(tmp_path / "b", jobs, store={"service": "postgres"}, other={"service": "s3"})
    with pytest.raises(SiteError):
        StudyImages(study=several).required()
