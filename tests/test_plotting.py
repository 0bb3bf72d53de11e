"""Figures are made without a display and show what they should."""

import sys

import numpy as np
import pytest

import densecrf
from densecrf.plotting import label_colors

pytest.importorskip("matplotlib")


def solved(shape, method="qp", labels=3, kernels=None):
    unary = np.random.default_rng(0).normal(size=(labels, *shape))
    crf = densecrf.DenseCRF(unary, kernels or [densecrf.Spatial(1.0, 1.0)], filter="exact")
    return crf.solve(method)


def test_saves_a_picture_without_pyplot(tmp_path):
    path = tmp_path / "result.png"
    solved((8, 9)).plot(path=path)
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "matplotlib.pyplot" not in sys.modules


def test_shows_the_image_of_the_bilateral_kernel():
    image = np.random.default_rng(0).integers(0, 255, size=(6, 7, 3), dtype=np.uint8)
    result = solved((6, 7), kernels=[densecrf.Bilateral(image, 3, 30, 1.0)])
    shown = np.asarray(result.plot().axes[0].images[0].get_array())
    tint = label_colors(3)[result.labels]
    np.testing.assert_allclose(shown, 0.55 * tint + 0.45 * image / 255, atol=1e-6)


@pytest.mark.parametrize("image_shape", [(6, 7), (6, 7, 1), (6, 7, 2), (6, 7, 3), (6, 7, 5)])
def test_takes_any_number_of_channels(image_shape):
    image = np.random.default_rng(0).normal(size=image_shape) * 1e4
    shown = np.asarray(solved((6, 7)).plot(image=image).axes[0].images[0].get_array())
    assert shown.shape == (6, 7, 3)
    assert shown.min() >= 0
    assert shown.max() <= 1


def test_refuses_an_image_of_another_size():
    with pytest.raises(ValueError, match=r"image: shape \(7, 6\) for labels of \(6, 7\)"):
        solved((6, 7)).plot(image=np.zeros((7, 6)))


@pytest.mark.parametrize(("shape", "panels"), [((9,), 1), ((3, 4), 1), ((3, 4, 5), 3)])
def test_lines_images_and_volumes(shape, panels):
    figure = solved(shape).plot(image=np.zeros(shape))
    assert len(figure.axes) == panels + 1


def test_volumes_show_their_middle_slices():
    result = solved((3, 4, 5))
    figure = result.plot()
    for axis, at in enumerate((1, 2, 2)):
        shown = np.asarray(figure.axes[axis].images[0].get_array())
        np.testing.assert_allclose(shown, label_colors(3)[result.labels.take(at, axis)])


def test_trace_shows_energy_and_bound():
    result = solved((6, 7))
    axes = solved((6, 7)).plot().axes[-1]
    names = {text.get_text() for text in axes.get_legend().get_texts()}
    assert {"energy, best so far", "lower bound", "gap"} <= names
    low, high = axes.get_ylim()
    assert low <= result.lower_bound <= result.energy <= high
    assert f"within {100 * result.gap:.3g} %" in axes.get_title()


def test_methods_without_a_bound_show_no_gap():
    axes = solved((6, 7), "mf5").plot().axes[-1]
    names = {text.get_text() for text in axes.get_legend().get_texts()}
    assert "gap" not in names
    assert axes.get_title().startswith("mf5")


def test_energies_that_fall_far_are_on_a_logarithmic_scale():
    result = solved((6, 7), "mf")
    result.trace.energy[0] = result.trace.current_energy[0] = 1e6
    result.trace.energy[1:] = [1e3] * (len(result.trace) - 1)
    assert result.plot().axes[-1].get_yscale() == "log"


def test_many_labels_shorten_the_key():
    result = solved((20, 20), "unary", labels=30)
    texts = [t.get_text() for t in result.plot().axes[0].get_legend().get_texts()]
    assert len(texts) == 13
    assert texts[-1] == "and 18 more"


def test_colors_differ():
    colors = label_colors(30)
    assert colors.shape == (30, 3)
    apart = np.abs(colors[:, None] - colors[None]).sum(-1) + np.eye(30)
    assert apart.min() > 0.1


def test_a_figure_shows_itself_once_and_axes_are_those_given():
    result = solved((6, 7))
    plt = pytest.importorskip("matplotlib.pyplot")
    figure = result.plot()
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert plt.get_fignums() == []  # pyplot knows nothing of it: nothing is shown a second time
    own, axes = plt.subplots()
    try:
        assert result.plot(ax=axes) is axes
        assert axes.images
        assert axes.get_legend() is not None
    finally:
        plt.close(own)


def test_undecided_pixels_are_hatched_and_named():
    result = solved((6, 7))
    result.margin = np.ones((6, 7), np.float32)
    result.margin[2, 3:5] = -1
    axes = result.plot().axes[0]
    shown = np.asarray(axes.images[0].get_array())
    assert shown[2, 3:5].tolist() == [[0, 0, 0], [1, 1, 1]]
    np.testing.assert_allclose(shown[0], label_colors(3)[result.labels[0]])
    assert axes.get_legend().get_texts()[-1].get_text() == "undecided; 95.2 % are proven"
