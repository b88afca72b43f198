"""Structured settings by the name of a preset file, and settings that name a file whose content is identity."""

from pathlib import Path

import pytest
import yaml
from shipped import SERVICES

from seamark.config.forms.table import label_of, qualities_of
from seamark.config.read import read_scenario, read_services, read_site
from seamark.errors import UserError
from seamark.model.trial import Plan
from seamark.planning.plan import plan
from seamark.report.numbers import level

ROOT = Path(__file__).parents[3]
SITE = read_site(ROOT / "config" / "sites" / "local.yaml")
CHAT = "chat: {weight: 3, prompt_len: 128}\nsearch: {prompt_len: 4096}\n"
RECIPE = {
    "name": "reader",
    "component": "null",
    "summary": "reads a list",
    "version": "1",
    "licence": "none",
    "driver": "seamark.drivers.null:Null",
    "workers": "wire",
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config/mixes").mkdir(parents=True)
    Path("config/mixes/busy_hour.yaml").write_text(CHAT)


def planned(lines: str, service: str = "known", services: dict[str, object] | None = None) -> Plan:
    Path("try.yaml").write_text(f"scenario: try\nrepetitions: 1\nworkload:\n  service: {service}\n{lines}")
    known = services or SERVICES
    return plan(read_scenario(Path("try.yaml"), known), known, SITE)


def mistakes(lines: str, **more: object) -> list[str]:
    with pytest.raises(UserError) as caught:
        planned(lines, **more)
    return list(caught.value.lines)


@pytest.mark.covers("E-CFG", "E-FR02")
def test_a_preset_is_the_mapping_in_its_file_under_the_files_name() -> None:
    [trial] = planned("  mix: busy_hour\n").trials
    written = CHAT.replace("\n", ", ")
    [same] = planned(f"  mix: {{name: busy_hour, {written}}}\n").trials
    assert (trial.id, trial.config_hash) == (same.id, same.config_hash)
    assert "--busy_hour-" in trial.id
    assert level(trial.settings["mix"], "mix") == "busy_hour"


def test_another_content_of_a_preset_is_another_trial_and_presets_are_levels_like_others() -> None:
    [before] = planned("  mix: busy_hour\n").trials
    Path("config/mixes/busy_hour.yaml").write_text(CHAT.replace("128", "129"))
    [after] = planned("  mix: busy_hour\n").trials
    assert before.config_hash != after.config_hash
    both = planned("  mix: [busy_hour, {chat: {}}, null]\n")
    assert [level(each, "mix") for each in both.factors["workload"]["mix"]] == ["busy_hour", "chat 1", "default"]


@pytest.mark.covers("E-VAL")
@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (
            "  mix: busy_our\n",
            "'busy_our' is no preset. Presets in config/mixes: broken, busy_hour, chat_and_search,"
            " shared_prefix_synthetic. Did you mean 'busy_hour'?",
        ),
        ("  mix: [busy_hour, busy_hour]\n", "a mix above reads the same, 'busy_hour'. Remove one."),
        ("  mix: ../mixes/busy_hour\n", "is no preset. Presets in config/mixes"),
        ("  mix: broken\n", "config/mixes/broken.yaml:1: chat.weight: 0 is no weight"),
    ],
)
def test_a_mistake_with_a_preset_is_one_line_with_its_place(lines: str, says: str) -> None:
    Path("config/mixes/broken.yaml").write_text("chat: {weight: 0}\n")
    [line] = mistakes(lines)
    assert says in line


def recipe(**setting: object) -> dict[str, object]:
    folder = Path("services")
    folder.mkdir(exist_ok=True)
    document = RECIPE | {"settings": {"items": {"type": "str", "role": "workload", "help": "list", **setting}}}
    (folder / "reader.yaml").write_text(yaml.safe_dump(document))
    return dict(read_services(folder))


@pytest.mark.covers("E-FR02")
def test_the_content_of_a_file_that_a_setting_names_is_identity() -> None:
    services = recipe(file=True)
    hashes = []
    for content in ("a", "a", "b"):
        Path("list.txt").write_text(content)
        [trial] = planned("  items: list.txt\n", "reader", services).trials
        hashes.append(trial.config_hash)
    assert hashes[0] == hashes[1] != hashes[2]
    Path("list.txt").rename("other.txt")
    [moved] = planned("  items: other.txt\n", "reader", services).trials
    assert moved.id != trial.id, "the path is still what the setting is"


@pytest.mark.covers("E-VAL")
def test_a_file_of_a_setting_that_cannot_be_read_is_one_line_with_its_place() -> None:
    [line] = mistakes("  items: [missing.txt]\n", service="reader", services=recipe(file=True))
    assert line.startswith("try.yaml:5: workload.items[0]: no such file: missing.txt. Correct the path")
    [line] = mistakes("  items: services\n", service="reader", services=recipe(file=True))
    assert "services: cannot be read: Is a directory." in line


@pytest.mark.covers("E-VAL")
@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"type": "int", "file": True}, "settings.items.file: only a setting of type str can name a file."),
        (
            {"type": "structure"},
            "a structure has the form of its name, and 'items' is no form. Forms: mix, command, method, task.",
        ),
    ],
)
def test_a_recipe_says_which_settings_can_have_a_form_or_a_file(setting: dict[str, object], says: str) -> None:
    with pytest.raises(UserError) as caught:
        recipe(**setting)
    assert says in str(caught.value)


def test_a_setting_of_a_users_own_recipe_may_have_the_name_of_a_form_and_be_plain_text() -> None:
    """`method: {type: str}` was a setting of recipes before methods of attention were a form."""
    assert qualities_of({"method": ("dense", None), "task": ("sort",)}) == ()
    assert label_of("method", "dense") == "dense"


@pytest.mark.covers("D1")
def test_a_profile_is_a_mix_or_a_trace_by_name_and_a_factor() -> None:
    trials = planned("  profile: [busy_hour, shared_prefix_synthetic]\n").trials
    same = planned("  mix: [busy_hour, shared_prefix_synthetic]\n").trials
    assert [(trial.id, trial.config_hash) for trial in trials] == [(trial.id, trial.config_hash) for trial in same]
    Path("config/traces").mkdir()
    Path("config/traces/mine.jsonl").write_text('{"at_s": 0, "prompt_tokens": 5}\n{"at_s": 1, "prompt_tokens": 5}\n')
    [trial] = planned("  profile: mine\n").trials
    assert (trial.settings["pattern"], trial.settings["trace"]) == ("trace", "config/traces/mine.jsonl")
    assert len(planned("  profile: [mine, example]\n").trials) == 2


@pytest.mark.parametrize(
    ("lines", "path", "code"),
    [
        ("  profile: [busy_hour, busy_our]\n", "workload.profile[1]", "unknown_name"),
        ("  profile: {chat: {weight: 1}}\n", "workload.profile", "unknown_name"),
        ("  profile: [busy_hour, example]\n", "workload.profile", "conflict"),
        ("  profile: busy_hour\n  mix: busy_hour\n", "workload.mix", "conflict"),
        ("  profile: example\n  pattern: poisson\n  rate_rps: 3\n", "workload.pattern", "conflict"),
        ("  profile: [busy_hour, busy_hour]\n", "workload.profile[1]", "invalid"),
        ("  profile: shared_prefix_synthetic\n  gen_tokens: [3, 4]\n", "workload.gen_tokens", "invalid"),
    ],
)
def test_a_wrong_profile_is_a_mistake_with_its_place(lines: str, path: str, code: str) -> None:
    with pytest.raises(UserError) as raised:
        planned(lines)
    assert [(mistake.path, mistake.code) for mistake in raised.value.mistakes] == [(path, code)]
