from __future__ import annotations

import contextlib
import os
import struct
import sys
import warnings
import zipfile
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pytest
import rasterio
import tifffile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from densecrf.colors import label_colors
from densecrf.io import (
    MSRC,
    VOC,
    FileFormatError,
    Palette,
    overlay,
    read_image,
    read_labels,
    read_npy,
    read_npz,
    write_image,
    write_labels,
)
from densecrf.io.images import image_size
from densecrf.validation import ArgumentWarning

if TYPE_CHECKING:
    from pathlib import Path

rng = np.random.default_rng(0)
COLOR = rng.integers(0, 256, (5, 7, 3), dtype=np.uint8)
GREY = rng.integers(0, 256, (5, 7), dtype=np.uint8)
DEEP = rng.integers(0, 65536, (5, 7), dtype=np.uint16)


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".tif"])
@pytest.mark.parametrize("pixels", [COLOR, GREY], ids=["colour", "grey"])
def test_lossless_formats_come_back_as_stored(
    tmp_path: Path, suffix: str, pixels: np.ndarray
) -> None:
    path = tmp_path / f"a{suffix}"
    Image.fromarray(pixels).save(path)
    read = read_image(path)
    assert read.dtype == np.uint8
    np.testing.assert_array_equal(read, pixels)


def test_jpeg_comes_back_in_its_shape(tmp_path: Path) -> None:
    Image.fromarray(COLOR).save(tmp_path / "a.jpg")
    Image.fromarray(COLOR).convert("CMYK").save(tmp_path / "c.jpg")
    assert read_image(tmp_path / "a.jpg").shape == (5, 7, 3)
    assert read_image(tmp_path / "c.jpg").shape == (5, 7, 3)


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_sixteen_bit_grey_is_put_on_the_scale_of_eight(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    Image.fromarray(DEEP).save(path)
    np.testing.assert_array_equal(read_image(path, native=True), DEEP)
    read = read_image(path)
    assert read.dtype == np.float32
    np.testing.assert_allclose(read, DEEP / 257.0, rtol=1e-6)


def write_bands(path: Path, bands: np.ndarray, **profile: object) -> None:
    """Write (bands, H, W) as GDAL does."""
    count, height, width = bands.shape
    profile = {"driver": "GTiff", "count": count, "dtype": bands.dtype.name, **profile}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with rasterio.open(path, "w", height=height, width=width, **profile) as file:
            file.write(bands)


def ramps(count: int, dtype: str) -> np.ndarray:
    """Return bands (count, 40, 48) that use the whole range of their type, all different."""
    white = 1.0 if dtype == "float32" else np.iinfo(dtype).max
    return (rng.random((count, 40, 48)) * white).astype(dtype)


@pytest.mark.parametrize("interleave", ["band", "pixel"])
@pytest.mark.parametrize("photometric", ["RGB", "MINISBLACK"])
@pytest.mark.parametrize("compress", ["none", "deflate", "lzw"])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("count", [3, 4, 13])
def test_every_band_of_a_tiff_is_read_in_any_layout(
    tmp_path: Path, count: int, dtype: str, compress: str, photometric: str, interleave: str
) -> None:
    bands = ramps(count, dtype)
    layout = {"interleave": interleave, "photometric": photometric, "compress": compress}
    write_bands(tmp_path / "a.tif", bands, **layout)
    read = read_image(tmp_path / "a.tif", native=True)
    np.testing.assert_array_equal(read, np.moveaxis(bands, 0, -1))
    scaled = np.moveaxis(read_image(tmp_path / "a.tif"), -1, 0)
    assert np.corrcoef(scaled.ravel(), bands.ravel())[0, 1] > 0.999999


def test_bands_are_chosen_and_ordered_from_1(tmp_path: Path) -> None:
    bands = ramps(4, "uint8")
    write_bands(tmp_path / "a.tif", bands, photometric="RGB")
    chosen = read_image(tmp_path / "a.tif", bands=(4, 3, 2))
    np.testing.assert_array_equal(chosen, np.moveaxis(bands[[3, 2, 1]], 0, -1))
    np.testing.assert_array_equal(read_image(tmp_path / "a.tif", bands=4), bands[3])
    for wrong in ((0,), (5,), ()):
        with pytest.raises(ValueError, match=r"bands=.*(1 to 4|1 or greater)"):
            read_image(tmp_path / "a.tif", bands=wrong)
    Image.fromarray(COLOR).save(tmp_path / "b.png")
    np.testing.assert_array_equal(read_image(tmp_path / "b.png", bands=[3, 1]), COLOR[..., [2, 0]])


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_a_band_declared_to_be_opacity_is_left_out_with_a_warning(
    tmp_path: Path, dtype: str
) -> None:
    """GDAL declares the fourth of four 8-bit bands so, near infrared or not."""
    bands = ramps(4, dtype)
    write_bands(tmp_path / "a.tif", bands, photometric="RGB", alpha="YES")
    with pytest.warns(ArgumentWarning, match=r"band 4 as opacity.*bands=\(1, 2, 3, 4\)"):
        assert read_image(tmp_path / "a.tif").shape == (40, 48, 3)
    whole = read_image(tmp_path / "a.tif", bands=(1, 2, 3, 4), native=True)
    np.testing.assert_array_equal(whole, np.moveaxis(bands, 0, -1))
    bands[3] = np.where(bands[3] > 50, np.iinfo(dtype).max, 0)
    write_bands(tmp_path / "b.tif", bands, photometric="RGB", alpha="YES")
    assert read_image(tmp_path / "b.tif").shape == (40, 48, 3)  # no warning: a cut-out


def test_overviews_of_a_tiff_are_no_pages(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    write_bands(path, ramps(4, "uint16"))
    with rasterio.open(path, "r+") as raster:
        raster.build_overviews([2, 4])
    assert read_image(path).shape == (40, 48, 4)
    assert image_size(path) == (40, 48, 1)


@pytest.mark.parametrize("layout", [{}, {"interleave": "band"}, {"compress": "deflate"}])
def test_a_truncated_tiff_is_refused(tmp_path: Path, layout: dict[str, str]) -> None:
    write_bands(tmp_path / "a.tif", ramps(4, "uint16"), **layout)
    whole = (tmp_path / "a.tif").read_bytes()
    path = tmp_path / "b.tif"
    for part in range(20):
        path.write_bytes(whole[: len(whole) * part // 20])
        with pytest.raises(FileFormatError, match=r"b\.tif: "):
            read_image(path)


def test_a_sparse_tiff_is_refused(tmp_path: Path) -> None:
    write_bands(tmp_path / "a.tif", np.zeros((4, 40, 48), np.uint16), SPARSE_OK=True)
    with pytest.raises(FileFormatError, match="lacks some of its strips"):
        read_image(tmp_path / "a.tif")


def test_without_a_codec_nothing_is_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bands(tmp_path / "a.tif", ramps(4, "uint16"), compress="lzw")
    for name in ("rasterio", "imagecodecs"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(FileFormatError, match="compressed by LZW; pip install imagecodecs or"):
        read_image(tmp_path / "a.tif")


def test_twelve_bits_in_a_sixteen_bit_file_are_recognised(tmp_path: Path) -> None:
    """They would be black otherwise: 4095 / 257 is 16 of 255."""
    Image.fromarray(DEEP >> 4).save(tmp_path / "a.png")
    with pytest.warns(
        ArgumentWarning, match=r"read as 12-bit, with white at 4095.*image_range=\(0"
    ):
        read = read_image(tmp_path / "a.png")
    np.testing.assert_allclose(read, (DEEP >> 4) * (255 / 4095), rtol=1e-6)
    np.testing.assert_array_equal(read_image(tmp_path / "a.png", native=True), DEEP >> 4)
    Image.fromarray(GREY.astype(np.uint16)).save(tmp_path / "b.png")
    np.testing.assert_array_equal(read_image(tmp_path / "b.png"), GREY)


@pytest.mark.parametrize("bits", [12, 16])
def test_colours_of_twelve_bits_are_refused(tmp_path: Path, bits: int) -> None:
    """Pillow would keep four of their bits; it cannot write such files either."""
    colors = rng.integers(0, 2**bits, (4, 5, 3)).astype(">u2")
    rows = b"".join(b"\0" + row.tobytes() for row in colors)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", 5, 4, 16, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
    )
    data = b"\x89PNG\r\n\x1a\n"
    for name, body in (*chunks, (b"IEND", b"")):
        check = struct.pack(">I", zlib.crc32(name + body))
        data += struct.pack(">I", len(body)) + name + body + check
    (tmp_path / "c.png").write_bytes(data)
    if bits == 16:
        np.testing.assert_array_equal(read_image(tmp_path / "c.png"), colors >> 8)
    else:
        with pytest.raises(FileFormatError, match=r"c\.png: has 16-bit colours below"):
            read_image(tmp_path / "c.png")


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes")
def test_pipes_and_folders_are_refused_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.png")
    os.mkfifo(tmp_path / "p.npy")
    os.mkfifo(tmp_path / "p.npz")
    for read, name in ((read_image, "p.png"), (read_labels, "p.png"), (read_npy, "p.npy")):
        with pytest.raises(FileFormatError, match=rf"{name}: is a named pipe, not a file"):
            read(tmp_path / name)
    with pytest.raises(FileFormatError, match="is a named pipe"):
        read_npz(tmp_path / "p.npz", ["probs"])
    with pytest.raises(FileFormatError, match="is a folder, not a file"):
        read_image(tmp_path)


def test_a_bomb_of_a_header_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """A small archive whose array claims a header of gigabytes."""
    header = b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**22)
    with zipfile.ZipFile(tmp_path / "b.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("probs.npy", header + b" " * 2**22)
    with pytest.raises(FileFormatError, match=r"b\.npz: holds 0\.0 GiB, above the limit"):
        read_npz(tmp_path / "b.npz", ["probs"], max_bytes=2**20)


def test_alpha_is_dropped_not_composited(tmp_path: Path) -> None:
    alpha = rng.integers(0, 256, (5, 7, 1), dtype=np.uint8)
    Image.fromarray(np.concatenate([COLOR, alpha], 2)).save(tmp_path / "a.png")
    Image.fromarray(np.concatenate([GREY[..., None], alpha], 2), "LA").save(tmp_path / "g.png")
    np.testing.assert_array_equal(read_image(tmp_path / "a.png"), COLOR)
    np.testing.assert_array_equal(read_image(tmp_path / "g.png"), GREY)


def test_palette_and_one_bit_images_are_expanded(tmp_path: Path) -> None:
    write_labels(tmp_path / "p.png", GREY % 21, "voc")
    np.testing.assert_array_equal(read_image(tmp_path / "p.png"), VOC.to_colors(GREY % 21))
    Image.fromarray(GREY > 128).save(tmp_path / "b.png")
    np.testing.assert_array_equal(read_image(tmp_path / "b.png"), 255 * (GREY > 128))
    np.testing.assert_array_equal(read_labels(tmp_path / "b.png"), GREY > 128)


def test_float_tiff_is_kept_and_nan_refused(tmp_path: Path) -> None:
    values = rng.normal(size=(5, 7)).astype(np.float32)
    Image.fromarray(values).save(tmp_path / "f.tif")
    np.testing.assert_array_equal(read_image(tmp_path / "f.tif"), values)
    values[2, 3] = np.nan
    Image.fromarray(values).save(tmp_path / "n.tif")
    with pytest.raises(FileFormatError, match=r"n\.tif: holds NaN"):
        read_image(tmp_path / "n.tif")


def test_thirty_two_bit_integers_have_no_scale(tmp_path: Path) -> None:
    Image.fromarray(np.full((2, 2), 70_000, np.int32)).save(tmp_path / "i.tif")
    with pytest.raises(FileFormatError, match=r"i\.tif: 32-bit values 70000\.\.70000"):
        read_image(tmp_path / "i.tif")


def test_pages_must_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "m.tif"
    pages = [Image.fromarray(GREY), Image.fromarray(255 - GREY)]
    pages[0].save(path, save_all=True, append_images=pages[1:])
    with pytest.raises(FileFormatError, match=r"m\.tif: has 2 pages; choose one with page=0 to 1"):
        read_image(path)
    np.testing.assert_array_equal(read_image(path, page=1), 255 - GREY)
    with pytest.raises(FileFormatError, match="has no page 2"):
        read_image(path, page=2)


def test_an_absurdly_large_image_is_refused_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(GREY).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(FileFormatError, match=r"a\.png: has more than 20 pixels; use .*--tile"):
        read_image(tmp_path / "a.png")


def test_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.png"):
        read_image(tmp_path / "none.png")
    (tmp_path / "text.png").write_text("hello")
    with pytest.raises(FileFormatError, match=r"text\.png: is not an image"):
        read_image(tmp_path / "text.png")
    Image.fromarray(rng.integers(0, 256, (50, 50, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    (tmp_path / "a.png").write_bytes((tmp_path / "a.png").read_bytes()[:3000])
    with pytest.raises(FileFormatError, match=r"a\.png: broken or truncated"):
        read_image(tmp_path / "a.png")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(position=st.integers(0, 400), value=st.integers(0, 255), suffix=st.sampled_from("pbtj"))
@pytest.mark.filterwarnings("ignore")
def test_damaged_images_are_read_or_refused(
    tmp_path: Path, position: int, value: int, suffix: str
) -> None:
    path = tmp_path / {"p": "a.png", "b": "a.bmp", "t": "a.tif", "j": "a.jpg"}[suffix]
    Image.fromarray(COLOR).save(path)
    data = bytearray(path.read_bytes())
    data[position % len(data)] = value
    path.write_bytes(data)
    with contextlib.suppress(FileFormatError):
        read_image(path)


def test_without_pillow_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"pip install densecrf\[cli\]"):
        read_image(tmp_path / "a.png")


def test_labels_round_trip_with_their_palette(tmp_path: Path) -> None:
    labels = GREY.astype(int) % 21
    labels[0, 0] = 255
    write_labels(tmp_path / "l.png", labels, "voc")
    with Image.open(tmp_path / "l.png") as image:
        assert image.mode == "P"
        np.testing.assert_array_equal(np.array(image), labels)
        np.testing.assert_array_equal(np.array(image.convert("RGB")), VOC.to_colors(labels))
    np.testing.assert_array_equal(read_labels(tmp_path / "l.png", "voc"), labels)
    np.testing.assert_array_equal(read_labels(tmp_path / "l.png"), labels)


def test_more_than_256_labels_become_sixteen_bits(tmp_path: Path) -> None:
    labels = np.arange(300).reshape(15, 20)
    write_labels(tmp_path / "l.png", labels)
    np.testing.assert_array_equal(read_labels(tmp_path / "l.png", Palette.generic(300)), labels)
    with Image.open(tmp_path / "l.png") as image:
        assert image.mode.startswith("I")


def test_a_negative_void_label_is_written_as_the_largest_value(tmp_path: Path) -> None:
    write_labels(tmp_path / "l.png", [[0, -1]], Palette.generic(3, -1))
    assert read_labels(tmp_path / "l.png").tolist() == [[0, 255]]


def test_colour_ground_truth_is_decoded(tmp_path: Path) -> None:
    labels = GREY.astype(int) % 21
    labels[0, 0] = 255
    Image.fromarray(MSRC.to_colors(labels)).save(tmp_path / "gt.bmp")
    np.testing.assert_array_equal(read_labels(tmp_path / "gt.bmp", "msrc"), labels)
    with pytest.raises(FileFormatError, match="name the palette"):
        read_labels(tmp_path / "gt.bmp")
    with pytest.raises(FileFormatError, match=r"gt\.bmp: colour .* is not in the palette"):
        read_labels(tmp_path / "gt.bmp", "camvid")


def test_labels_outside_the_classes_are_named(tmp_path: Path) -> None:
    Image.fromarray(np.uint8([[0, 30]])).save(tmp_path / "l.png")
    with pytest.raises(FileFormatError, match=r"l\.png: label 30 at \(0, 1\) is outside the 21"):
        read_labels(tmp_path / "l.png", "voc")
    with pytest.raises(ValueError, match="label 30"):
        write_labels(tmp_path / "o.png", [[30]], "voc")
    with pytest.raises(ValueError, match="must be integers"):
        write_labels(tmp_path / "o.png", [[0.5]])
    assert not (tmp_path / "o.png").exists()


def test_overlay_keeps_void_and_marks_borders(tmp_path: Path) -> None:
    labels = np.array([[1, 1, 2, 255]])
    picture = overlay(np.full((1, 4, 3), 100), labels, "voc", alpha=0.5)
    assert picture[0, 0].tolist() == [114, 50, 50]
    assert picture[0, 2].tolist() == [255, 255, 255]
    assert overlay([[9]], [[255]], "voc").tolist() == [[[9, 9, 9]]]
    with pytest.raises(ValueError, match="same size"):
        overlay(np.zeros((2, 2)), labels)
    with pytest.raises(ValueError, match="alpha=2"):
        overlay(np.zeros((1, 4)), labels, alpha=2)
    write_image(tmp_path / "o.png", picture)
    np.testing.assert_array_equal(read_image(tmp_path / "o.png"), picture)


def test_overlay_hatches_undecided_pixels() -> None:
    undecided = np.array([[False, True, True, True, True, False]])
    picture = overlay(np.full((1, 6), 100), np.ones((1, 6), int), undecided=undecided)
    assert picture[0, :, 0].tolist() == [165, 0, 255, 255, 0, 165]
    with pytest.raises(ValueError, match="undecided: int64 of shape"):
        overlay([[9]], [[1]], undecided=[[1]])


def test_only_png_names_and_real_images_are_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"o\.jpg: give a name that ends in \.png"):
        write_image(tmp_path / "o.jpg", COLOR)
    with pytest.raises(ValueError, match="must be uint8"):
        write_image(tmp_path / "o.png", COLOR / 255)


def test_reads_the_reference_images(shared_data: Path) -> None:
    for name in ("2_14_s", "4_11_s"):
        with np.load(shared_data / "msrc_paper" / f"{name}.npz") as stored:
            image = stored["image"]
        raw = read_image(shared_data / "msrc_paper" / "raw" / f"{name}.bmp")
        np.testing.assert_array_equal(raw, image)
        labels = read_labels(shared_data / "msrc_paper" / "labels" / f"{name}.png", "msrc")
        assert labels.shape == image.shape[:2]


def test_pictures_have_the_colours_that_colour_blind_people_can_tell_apart(tmp_path: Path) -> None:
    labels = np.arange(7)[None]
    colors = np.rint(255 * label_colors(7)).astype(int)
    tinted = overlay(np.zeros((1, 7)), labels, alpha=1.0)
    write_labels(tmp_path / "labels.png", labels)
    with Image.open(tmp_path / "labels.png") as picture:
        np.testing.assert_array_equal(np.asarray(picture.convert("RGB"))[0], colors)
    np.testing.assert_array_equal(tinted[0, 0], colors[0])  # the others have borders
    voc = VOC.to_colors(labels[:, :3])  # as ground truth of other programs may be painted
    np.testing.assert_array_equal(Palette.generic(3).to_labels(voc), [[0, 1, 2]])


@pytest.mark.parametrize("level", [0, 90, 255])
def test_borders_contrast_with_the_picture(level: int) -> None:
    for labels in ([[0, 1]], [[6, 3]], [[2, 5]]):
        picture = overlay(np.full((1, 2), level), labels)
        tint = overlay(np.full((1, 2), level), np.array(labels)[:, [1, 1]])
        weights = np.array([0.299, 0.587, 0.114])
        border, inside = picture[0, 1] @ weights, tint[0, 1] @ weights
        assert set(picture[0, 1]) in ({0}, {255})
        assert abs(border - inside) >= 127


@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize("kind", ["u2", "i2", "u4", "i4", "f2", "f4", "f8"])
def test_grey_tiff_of_any_type_and_byte_order(
    tmp_path: Path, kind: str, byteorder: str, compression: str | None
) -> None:
    stored = (np.random.default_rng(0).random((20, 19)) * 30000).astype(kind)
    options = {"byteorder": byteorder, "compression": compression}
    tifffile.imwrite(tmp_path / "grey.tif", stored, photometric="minisblack", **options)
    found = read_image(tmp_path / "grey.tif", native=True)
    np.testing.assert_array_equal(found, stored.astype("f4") if kind[0] == "f" else stored)


def test_negative_grey_values_are_refused(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "grey.tif", np.int8([[-3, 4]]), photometric="minisblack")
    with pytest.raises(FileFormatError, match=r"8-bit values -3\.\.4 have no known scale"):
        read_image(tmp_path / "grey.tif")


def test_dark_tiles_of_8_bits_are_not_taken_for_16(tmp_path):
    tifffile = pytest.importorskip("tifffile")
    pixels = np.arange(15, dtype=np.uint8).reshape(5, 1, 3)
    planes = np.moveaxis(pixels, -1, 0)
    options = {"photometric": "rgb", "planarconfig": "separate", "tile": (16, 16)}
    tifffile.imwrite(tmp_path / "dark.tif", planes, **options)
    np.testing.assert_array_equal(read_image(tmp_path / "dark.tif"), pixels)
