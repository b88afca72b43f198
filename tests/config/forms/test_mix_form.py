"""A mix of request classes in a scenario: one canonical text, readable names, every mistake with its line."""

import json
from pathlib import Path

import pytest
from shipped import SERVICES

from seamark.config.forms.table import text_of
from seamark.config.read import read_scenario, read_site
from seamark.errors import UserError
from seamark.model.trial import Plan
from seamark.planning.plan import plan
from seamark.planning.plan_text import describe
from seamark.report.numbers import level

ROOT = Path(__file__).parents[3]
SITE = read_site(ROOT / "config" / "sites" / "local.yaml")
HEAD = "scenario: mixed\nrepetitions: 1\nworkload:\n  service: "
MIX = "  mix:\n    chat: {weight: 3, prompt_len: 128, gen_tokens: 64}\n    search: {prompt_len: 4096}\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def planned(lines: str, service: str = "known") -> Plan:
    Path("mixed.yaml").write_text(f"{HEAD}{service}\n{lines}", encoding="utf-8")
    return plan(read_scenario(Path("mixed.yaml"), SERVICES), SERVICES, SITE)


def mistakes(lines: str, service: str = "known") -> list[str]:
    with pytest.raises(UserError) as caught:
        planned(lines, service)
    return list(caught.value.lines)


@pytest.mark.covers("E-CFG", "E-FR02")
def test_a_mix_is_one_setting_with_a_canonical_text_and_readable_names() -> None:
    [trial] = planned(MIX).trials
    text = str(trial.settings["mix"])
    assert json.loads(text) == {
        "chat": {"gen_tokens": 64, "prompt_len": 128, "weight": 3},
        "search": {"prompt_len": 4096, "weight": 1},
    }
    assert " " not in text
    assert "--chat-3-search-1-" in trial.id
    assert text_of("mix", text) == "chat 3 (gen_tokens 64, prompt_len 128), search 1 (prompt_len 4096)"
    assert trial.changed["mix"] == text


def test_what_a_mix_is_decides_identity_and_how_it_is_written_does_not() -> None:
    first = planned(MIX).trials[0]
    again = "  mix: {search: {prompt_len: 4096, weight: 1.0}, chat: {gen_tokens: 64, weight: 3, prompt_len: 128}}\n"
    other = MIX.replace("4096", "4097")
    assert planned(again).trials[0].config_hash == first.config_hash
    assert planned(other).trials[0].config_hash != first.config_hash
    assert planned(other).trials[0].id != first.id


def test_a_list_of_mixes_is_a_factor_that_reads_well() -> None:
    several = (
        "  mix:\n    - {chat: {weight: 3}, search: {prompt_len: 4096}}\n"
        "    - {chat: {weight: 1}, search: {prompt_len: 4096}}\n"
        "    - {name: long prompts, chat: {weight: 1}, search: {prompt_len: 9000}}\n"
    )
    made = planned(several)
    assert len(made.trials) == 3
    [line] = [line for line in describe(made).splitlines() if line.split()[:2] == ["mix", "workload"]]
    levels = line.split("workload", 1)[1].split(";")
    assert sorted(each.strip() for each in levels) == ["chat 1, search 1", "chat 3, search 1", "long prompts"]
    words = [trial.workload.rsplit("-", 1)[0] for trial in made.trials]
    assert sorted(words) == ["chat-1-search-1", "chat-3-search-1", "long-prompts"]
    shown = {level(trial.settings["mix"], "mix") for trial in made.trials}
    assert shown == {"chat 1, search 1", "chat 3, search 1", "long prompts"}


def test_a_mix_may_be_included_and_excluded() -> None:
    both = "  mix: [{a: {batch: 2}}, {b: {batch: 4}}]\n"
    assert len(planned(both + "  exclude: [{mix: {a: {weight: 1, batch: 2}}}]\n").trials) == 1
    assert len(planned(both + "  include: [{mix: {c: {batch: 8}}}]\n").trials) == 3


@pytest.mark.covers("E-VAL")
@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("{chat: {promt_len: 1}}", "5: workload.mix.chat.promt_len: unknown key. Did you mean 'prompt_len'?"),
        ("{chat: {weight: 0}}", "mix.chat.weight: 0 is no weight: write more than 0"),
        ("{chat: {weight: -2.5}}", "mix.chat.weight: -2.5 is no weight"),
        ("{chat: {weight: much}}", "mix.chat.weight: expected a number, but it is the text 'much'"),
        ("{chat: {weight: 9999}, rare: {}}", "mix.rare: its share, 0.0001, is less than 0.001"),
        ("{}", "workload.mix: has no class. Write classes such as"),
        ("{name: empty}", "workload.mix: has no class"),
        (
            "3",
            "workload.mix: expected classes such as {chat: {weight: 3, ...}, search: {weight: 1, ...}}, or the",
        ),
        (
            "chat",
            "workload.mix: 'chat' is no preset. Presets in config/mixes: chat_and_search, shared",
        ),
        ("{chat: 3}", "mix.chat: expected keys and values, but it is '3'"),
        ("{a/b: {}}", "'a/b' cannot name a class: use letters"),
        ("{chat: {prompt_len: [1, 2]}}", "mix.chat.prompt_len: a class has one value of each setting"),
        ("{chat: {prompt_len: 0}}", "mix.chat.prompt_len: 0 is too small: at least 1 tokens"),
        ("{chat: {ttft_ms: 3.0}}", "mix.chat.ttft_ms: unknown key. It needs a server of its own"),
        ("{chat: {stream: false}}", "mix.chat.stream: unknown key. It is of the whole load"),
        ("{chat: {duration_s: 3}}", "mix.chat.duration_s: unknown key. It shapes the whole load"),
        ("[{chat: {}}, {chat: {weight: 1}}]", "mix[1]: a mix above reads the same, 'chat 1'. Remove one."),
        ("[{chat: {}}, {chat: {batch: 2}}]", "mix[1]: a mix above reads the same, 'chat 1'. Give one a line such as"),
        ("[]", "workload.mix: an empty list has no level"),
    ],
)
def test_a_mistake_in_a_mix_is_one_line_with_its_place(written: str, says: str) -> None:
    [line] = mistakes(f"  mix: {written}\n")
    assert line.startswith("mixed.yaml:5: ")
    assert says in line


def test_all_mistakes_of_a_mix_are_reported_at_once() -> None:
    assert len(mistakes("  mix:\n    chat: {weight: 0, promt_len: 1}\n    search: {gen_tokens: x}\n")) == 3


def test_a_factor_that_every_class_overrides_is_a_mistake() -> None:
    [line] = mistakes(MIX + "  prompt_len: [1, 2]\n")
    assert "workload.prompt_len: has no effect: every class of the mix has a value of its own" in line
    assert len(planned(MIX + "  gen_tokens: [1, 2]\n").trials) == 2
    assert len(planned("  mix: [null, {chat: {prompt_len: 3}}]\n  prompt_len: [1, 2]\n").trials) == 4


@pytest.mark.parametrize("text", ["", "x" * 40, "5", "[1]", "{", "null"])
def test_a_text_of_a_damaged_result_that_is_no_mix_stands_for_itself(text: str) -> None:
    assert level(text, "mix") == text
    assert text_of("mix", text) == text
