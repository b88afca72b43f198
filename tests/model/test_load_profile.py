"""A load profile is made of a trial's settings: each field has one default, in the form that the load reads."""

import dataclasses

import pytest

from seamark.model.load_profile import COMMON_SETTINGS, LoadProfile


def test_a_setting_that_is_missing_or_none_has_its_default() -> None:
    assert LoadProfile.of({}) == LoadProfile()
    nothing = {setting.name: None for setting in COMMON_SETTINGS} | {"pattern": None}
    assert LoadProfile.of(nothing) == LoadProfile()


def test_the_default_of_a_setting_is_that_of_its_field_or_none_where_it_may_be_left_out() -> None:
    of_fields = {each.name: each.default for each in dataclasses.fields(LoadProfile)}
    for setting in COMMON_SETTINGS:
        assert setting.default in (of_fields[setting.name], None)
    assert LoadProfile.of({setting.name: setting.default for setting in COMMON_SETTINGS}) == LoadProfile()


def test_numbers_have_the_type_of_their_field_and_other_settings_are_parameters_of_the_pattern() -> None:
    load = LoadProfile.of({"pattern": "ramp", "duration_s": 4, "shards": 2.0, "rate_rps": 10, "ramp_to_rps": None})
    assert (load.pattern, load.duration_s, load.shards) == ("ramp", 4.0, 2)
    assert isinstance(load.duration_s, float)
    assert isinstance(load.shards, int)
    assert load.parameters == {"rate_rps": 10, "ramp_to_rps": None}


@pytest.mark.parametrize(("given", "warmup_s"), [({}, 2.5), ({"duration_s": 20.0}, 5.0)])
def test_a_warm_up_that_is_detected_is_a_quarter_of_the_duration_at_most(given: dict, warmup_s: float) -> None:
    load = LoadProfile.of({"warmup_s": "auto", **given})
    assert load.detects_warmup
    assert load.warmup_s == warmup_s
    assert load.length_s == load.duration_s + warmup_s


def test_a_request_limit_is_one_of_whole_sessions_where_there_are_turns() -> None:
    assert LoadProfile(requests=10).arrivals == 10
    assert LoadProfile(requests=10, turns=4).arrivals == 3
    assert LoadProfile(turns=4).arrivals is None
