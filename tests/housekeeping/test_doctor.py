"""What the doctor says of facts about a machine."""

import pytest

from seamark.housekeeping.doctor import sessions


@pytest.mark.parametrize(
    ("enabled", "apart", "level"),
    [(True, False, "warning"), (True, True, "ok"), (False, False, "ok"), (None, False, "ok")],
)
def test_a_spinning_server_is_warned_of_only_where_sessions_share_cores_with_the_load(enabled, apart, level):
    assert sessions(enabled, ["vllm"], apart=apart).level == level


def test_the_warning_says_what_the_recipe_word_does_and_which_recipes_have_it():
    found = sessions(True, ["llama", "vllm"], apart=False)
    assert "`busy_waits: true` in its recipe gives all other sessions priority (llama, vllm)." in found.remedy
    assert "noautogroup" in found.remedy
    assert "()" not in sessions(True, [], apart=False).remedy
