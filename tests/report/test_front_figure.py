"""The figure of fronts: no label over another, at twelve panels and twenty methods, and no axis below zero."""

from itertools import combinations

import pytest

from seamark.model.results.comparison import Front, FrontPoint
from seamark.report.figures.canvas import drawing
from seamark.report.page.fronts import draw_fronts, front_pictures

METHODS = ["dense", *(f"hash_attention_of_{n}_bits_and_a_long_name" for n in range(19))]


def front(panel, *, together):
    """Return a front of twenty methods, apart from each other or nearly at one place."""
    points = tuple(
        FrontPoint(
            treatment=name,
            level=name,
            trials=3,
            quality=0.9 + (0.0001 if together else 0.004) * (at % 7),
            cost=2.5e6 * (1 + (0.0001 if together else 0.05) * at),
            ratio=1.0,
            on_front=at % 3 == 0,
            probability=0.5,
        )
        for at, name in enumerate(METHODS)
    )
    return Front(
        workload=f"workload-{panel % 2}",
        factor="method",
        fixed={"task": f"ruler/niah_multikey_{panel}", "model": "a-model-with-a-long-name-7b-instruct"},
        quality="score",
        cost="peak_memory_bytes",
        cost_unit="bytes",
        margin=0.05,
        items=100,
        points=points,
    )


def texts_of(axis):
    shown = []
    for ticks, (low, high), labels in (
        (axis.get_xticks(), axis.get_xlim(), axis.get_xticklabels()),
        (axis.get_yticks(), axis.get_ylim(), axis.get_yticklabels()),
    ):
        shown += [label for at, label in zip(ticks, labels, strict=True) if low <= at <= high]
    return [axis.title, axis.xaxis.label, axis.yaxis.label, *shown, *axis.texts]


@pytest.mark.slow
@pytest.mark.parametrize("together", [False, True], ids=["apart", "together"])
@pytest.mark.parametrize("panels", [1, 2, 12])
def test_no_label_lies_over_another_or_is_cut_off(panels, together):
    with drawing(max(5.2, 3.4 * min(3, panels)), 2.9 * -(-panels // 3) + 1.6) as figure:
        draw_fronts(figure, [front(panel, together=together) for panel in range(panels)], several=True)
        figure.canvas.draw()
        axes = [axis for axis in figure.axes if axis.get_visible()]
        texts = [each for axis in axes for each in texts_of(axis)] + list(figure.legends[0].get_texts())
        assert len(axes) == panels
        assert sum(len(axis.texts) for axis in axes) == panels * len(METHODS)
        boxes = [(each.get_text(), each.get_window_extent()) for each in texts]
        over = [(one, other) for (one, a), (other, b) in combinations(boxes, 2) if a.overlaps(b)]
        assert over == []
        assert [text for text, box in boxes if box.x0 < 0 or box.y0 < 0 or box.x1 > figure.bbox.x1] == []
        assert min(axis.get_xlim()[0] for axis in axes) >= 0


@pytest.mark.slow
def test_the_picture_is_drawn():
    [picture] = front_pictures([front(panel, together=False) for panel in range(12)])
    assert len(picture.png) > 10_000
