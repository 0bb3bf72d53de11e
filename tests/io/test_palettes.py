from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from densecrf.io import CAMVID, CAMVID32, MSRC, PALETTES, VOC, Palette, get_palette, voc_colormap


def test_voc_colours_are_the_published_ones() -> None:
    assert VOC.classes.index("person") == 15
    assert VOC.colors[15] == (192, 128, 128)
    assert VOC.colors[20] == (0, 64, 128)
    assert tuple(voc_colormap()[255]) == VOC.void_color == (224, 224, 192)
    assert len(np.unique(voc_colormap(65536), axis=0)) == 65536


def test_msrc_colours_are_the_published_ones() -> None:
    published = {
        "building": (128, 0, 0),
        "grass": (0, 128, 0),
        "sheep": (0, 128, 128),
        "sky": (128, 128, 128),
        "aeroplane": (192, 0, 0),
        "chair": (0, 192, 0),
        "road": (128, 64, 128),
        "cat": (0, 192, 128),
        "boat": (192, 64, 0),
    }
    for name, color in published.items():
        assert MSRC.colors[MSRC.classes.index(name)] == color
    horse_mountain_void = np.array([[128, 0, 128], [64, 0, 0], [0, 0, 0]])
    assert MSRC.to_labels(horse_mountain_void).tolist() == [255, 255, 255]


def test_camvid_colours_fall_into_eleven_groups() -> None:
    assert len(CAMVID) == 11
    assert len(CAMVID32) == 31
    groups = CAMVID.to_labels(np.array(CAMVID32.colors))
    assert set(groups.tolist()) == set(range(11))
    wall = CAMVID32.colors[CAMVID32.classes.index("Wall")]
    assert CAMVID.classes[CAMVID.to_labels([wall])[0]] == "Building"


@pytest.mark.parametrize("palette", PALETTES.values(), ids=PALETTES)
def test_colours_and_labels_convert_both_ways(palette: Palette) -> None:
    labels = np.array([*range(len(palette)), palette.void]).reshape(1, -1)
    np.testing.assert_array_equal(palette.to_labels(palette.to_colors(labels)), labels)
    moved = palette.with_void(-1)
    assert moved.to_labels(palette.to_colors(labels))[0, -1] == -1


@given(st.integers(1, 400), st.sampled_from([255, -1, 65535]))
def test_generic_palettes_round_trip(count: int, void: int) -> None:
    palette = Palette.generic(count, void)
    labels = np.append(np.arange(count), palette.void)
    # Colour 255 of the formula is also void's, so it stands for the class where there is one.
    distinct = labels[:-1] if count > 255 else labels
    np.testing.assert_array_equal(palette.to_labels(palette.to_colors(distinct)), distinct)


def test_unknown_colours_and_labels_are_named() -> None:
    with pytest.raises(
        ValueError, match=r"\(1, 2, 3\) at \(1, 0\) is not in the palette 'msrc' \(2 such"
    ):
        MSRC.to_labels([[[0, 0, 0]], [[1, 2, 3]], [[1, 2, 3]]])
    with pytest.raises(ValueError, match=r"colour \(127, 256, 0\)"):
        MSRC.to_labels([[127, 256, 0]])
    with pytest.raises(ValueError, match=r"label 21 at \(0,\) is outside the 21 classes"):
        MSRC.check([21, 3, -1])
    with pytest.raises(ValueError, match="must be integers"):
        MSRC.check([0.5])
    with pytest.raises(ValueError, match=r"must be integers \(..., 3\)"):
        MSRC.to_labels([[0, 0]])


def test_palettes_are_found_by_name() -> None:
    assert get_palette("VOC") is VOC
    assert get_palette(MSRC) is MSRC
    with pytest.raises(ValueError, match="'coco' is unknown; choose one of msrc, voc"):
        get_palette("coco")


def test_nonsense_palettes_are_refused() -> None:
    with pytest.raises(ValueError, match="1 classes and 2 colors"):
        Palette("x", ("a",), ((0, 0, 0), (1, 1, 1)))
    with pytest.raises(ValueError, match="void=1 is also the label of 'b'"):
        Palette("x", ("a", "b"), ((0, 0, 0), (1, 1, 1)), void=1)
    with pytest.raises(ValueError, match="count=0"):
        voc_colormap(0)
