"""Direction of qualities that no recipe declares."""

import pytest

from seamark.model.objectives import quality_direction


@pytest.mark.covers("E-FR29")
@pytest.mark.parametrize(
    ("name", "ops", "direction"),
    [
        ("run_time_s", [], "lower"),
        ("recall_at_10", ["<="], "higher"),
        ("score", [">=", ">="], "higher"),
        ("loss", ["<="], "lower"),
        ("loss", ["<=", ">="], "neither"),
        ("loss", [], "neither"),
    ],
)
def test_a_quality_has_a_direction_by_its_name_or_by_its_objectives(name, ops, direction):
    assert quality_direction(name, ops) == direction
