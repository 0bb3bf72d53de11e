"""The show-piece, on few pixels: its energies, its picture, and the three lines it ends with."""

from __future__ import annotations

import re

import numpy as np
import pytest

from densecrf.cli.demo import compare, proven, write_picture
from densecrf.data import astronaut, coffee


@pytest.fixture(scope="module")
def comparisons():
    """Both scenes at an eighth of the size."""
    return [compare(scene(step=8)) for scene in (coffee, astronaut)]


def test_scenes_are_a_problem_of_two_labels_and_one_of_several():
    scenes = [coffee(), astronaut()]
    assert [len(scene.classes) for scene in scenes] == [2, 6]
    for scene in scenes:
        drawn = set(np.unique(scene.scribbles)) - {255}
        assert drawn == set(range(len(scene.classes))), "every label has strokes on the photograph"
        assert len(scene.colors) == len(scene.classes)


def test_answers_lie_on_the_allowed_side_of_the_bound(comparisons):
    for done in comparisons:
        lp = done.result("lp")
        assert lp.gap <= 1e-3
        for result in done.results:
            assert result.energy >= lp.lower_bound
            assert done.crf.energy(result.labels) == pytest.approx(result.energy, rel=1e-6)
            strokes = done.scene.scribbles != 255
            drawn = done.scene.scribbles[strokes]
            np.testing.assert_array_equal(result.labels[strokes], drawn)


def test_three_lines_say_what_the_numbers_are(comparisons):
    bounds, gaps, excess = proven(comparisons)
    for done in comparisons:
        lp = done.result("lp")
        assert f"{done.crf.n_labels}^{done.crf.n} labellings of {done.scene.name}" in bounds
        assert f"below {lp.lower_bound:,.1f}" in bounds
    said_gaps = [float(number) / 100 for number in re.findall(r"([\d.]+) %", gaps)]
    said_excess = [float(number) / 100 for number in re.findall(r"([\d.]+) %", excess)]
    for done, gap, above in zip(comparisons, said_gaps, said_excess, strict=True):
        lp, mf = done.result("lp"), done.result("mf")
        assert lp.energy <= lp.lower_bound * (1 + gap), "rounded to the safe side"
        assert mf.energy >= lp.energy * (1 + above) * (1 - 1e-7)  # both may find the same


def test_picture_is_one_png_of_moderate_size(comparisons, tmp_path):
    write_picture(tmp_path / "new" / "demo.png", comparisons)
    data = (tmp_path / "new" / "demo.png").read_bytes()
    assert re.match(rb"\x89PNG", data)
    assert 20_000 < len(data) < 600_000
