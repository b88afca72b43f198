"""What is written of a figure: coordinates may be rounded, what a reader reads may not."""

import re

import pytest
from make_results import Made, make_results

from seamark.report.figures.canvas import drawing, picture_of, shortened
from seamark.report.page.render import write_report

LONG = re.compile(r"\d\.\d{3,}")


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_small_numbers_in_a_legend_keep_their_digits():
    with drawing(4, 3) as figure:
        axes = figure.subplots()
        for limit in (0.001, 0.002, 0.005):
            axes.plot([0, 1 / 3], [0, 2 / 3], label=f"limit {limit}")
        axes.set_title('x="0.00125" y="0.00375"')
        figure.legend()
        picture = picture_of(figure, "small", alt="small", caption="small")
    svg = picture.svg.decode()
    shown = texts(svg)
    assert [text for text in shown if text.startswith("limit")] == ["limit 0.001", "limit 0.002", "limit 0.005"]
    assert 'x="0.00125" y="0.00375"' in " ".join(shown)
    coordinates = re.findall(r'<[^>]*\s(?:d|x|y|points|transform)="([^"]*)"', svg)
    assert coordinates
    assert [each for each in coordinates if LONG.search(each)] == []


def test_coordinates_are_rounded_and_not_cut_off():
    svg = b'<path d="M 1.996 -0.0049 L 10.125001 3e-05" transform="translate(1.2345 6.789)"/>'
    assert shortened(svg) == b'<path d="M 2.00 -0.00 L 10.13 3e-05" transform="translate(1.23 6.79)"/>'


def test_what_multiplies_a_length_keeps_its_digits():
    svg = (
        b'<use transform="translate(1.234 0) scale(0.015625 -0.015625)" style="stroke-width: 0.125"/><g id="a0.125"/>'
    )
    assert shortened(svg) == svg


def test_a_picture_knows_its_size():
    with drawing(8.4, 2.5) as figure:
        figure.subplots().plot([0, 1])
        picture = picture_of(figure, "size", alt="size", caption="size")
    assert (picture.width_px, picture.height_px) == (806, 240)
    assert b'width="604.8pt" height="180pt"' in picture.svg


@pytest.mark.slow
@pytest.mark.covers("E-FR28")
def test_the_page_keeps_small_levels_of_a_factor_and_a_place_for_each_figure(tmp_path):
    levels = (0.001, 0.002, 0.005)
    made = Made(
        service="faiss",
        component="vectordb",
        unit="query",
        service_ms=0.8,
        cap_rps=2_500,
        factors={"ef_scale": levels, "concurrency": (1, 4)},
    )
    results = make_results(tmp_path / "results", services=(made,), fail=(), suspect=())
    index = write_report(results, tmp_path / "reports")
    legend = texts((index.parent / "figures" / "faiss-by-concurrency.svg").read_text())
    assert {f"ef_scale {level:g}" for level in levels} <= set(legend)
    images = re.findall(r"<img [^>]*>", index.read_text())
    assert images
    assert [image[-160:] for image in images if not re.search(r'width="\d+" height="\d+"', image)] == []
    assert 'loading="lazy"' not in index.read_text()
