"""What notebooks show: cards of HTML and one-line reprs."""

import re
from base64 import b64decode
from html.parser import HTMLParser
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

import densecrf
from densecrf.plotting import label_colors


@pytest.fixture(scope="module")
def crf():
    rng = np.random.default_rng(0)
    image = rng.integers(0, 255, (12, 20, 3)).astype(np.uint8)
    kernels = [densecrf.Spatial(2, 1), densecrf.Bilateral(image, 5, 20, 2)]
    return densecrf.DenseCRF(rng.random((3, 12, 20)), kernels)


def check_html(text):
    """Check that all tags are closed; return the pictures."""
    open_tags = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag, attrs):  # noqa: ARG002
            if tag != "img":
                open_tags.append(tag)

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

    Parser().feed(text)
    assert open_tags == []
    assert "<script" not in text
    found = re.findall(r"data:image/png;base64,([\w+/=]+)", text)
    return [np.array(Image.open(BytesIO(b64decode(data)))) for data in found]


def test_a_result_shows_its_labels_and_numbers(crf):
    result = crf.solve("lp", gap=1e-3)
    (picture,) = check_html(result._repr_html_())
    np.testing.assert_array_equal(picture, np.rint(255 * label_colors(3))[result.labels])
    assert f"{result.energy:,.1f}" in result._repr_html_()
    assert "proven" in result._repr_html_()
    assert "no certificate" in crf.solve("mf5")._repr_html_()


@pytest.mark.parametrize("shape", [(30,), (4, 5, 6), (2, 3, 4, 5), (500, 3)])
def test_other_grids_are_shown_as_far_as_can_be(shape):
    crf = densecrf.DenseCRF(np.random.default_rng(0).random((2, *shape)))
    result = crf.solve("unary")
    assert len(check_html(result._repr_html_())) == (len(shape) > 1)
    check_html(crf._repr_html_())


def test_models_kernels_and_certificates(crf):
    assert len(check_html(crf._repr_html_())) == 1
    assert [len(check_html(kernel._repr_html_())) for kernel in crf.kernels] == [0, 1]
    features = densecrf.Features(np.zeros((240, 2)))
    check_html(features._repr_html_())
    certificate = densecrf.certify(crf, np.zeros((12, 20), int), budget=3)
    assert "proven" in certificate._repr_html_()
    check_html(certificate._repr_html_())


def test_reprs_have_one_line(crf):
    things = [crf, crf.solve("lp"), crf.solve("mf5"), *crf.kernels]
    things += [
        densecrf.Features(np.zeros((240, 2))),
        densecrf.certify(crf, np.zeros((12, 20), int)),
    ]
    for thing in things:
        assert "\n" not in repr(thing)
        assert len(repr(thing)) < 120


def test_text_is_escaped(crf):
    result = crf.solve("mf5")
    result.message = "<script>alert(1)</script>"
    check_html(result._repr_html_())
