"""Files in and out: images, label maps, score maps, data sets, and atomic writing."""

from densecrf.io import coco
from densecrf.io.arrays import MAX_BYTES, read_npy, read_npz
from densecrf.io.atomic import atomic_writer, write_json, write_npz, write_text
from densecrf.io.datasets import Dataset, Item, ItemError, Sample
from densecrf.io.errors import FileFormatError
from densecrf.io.images import overlay, read_image, read_labels, write_image, write_labels
from densecrf.io.palettes import (
    CAMVID,
    CAMVID32,
    MSRC,
    PALETTES,
    VOC,
    Palette,
    get_palette,
    voc_colormap,
)
from densecrf.io.unaries import Kind, Scores, read_c_unary, read_scores, read_unary

__all__ = [
    "CAMVID",
    "CAMVID32",
    "MAX_BYTES",
    "MSRC",
    "PALETTES",
    "VOC",
    "Dataset",
    "FileFormatError",
    "Item",
    "ItemError",
    "Kind",
    "Palette",
    "Sample",
    "Scores",
    "atomic_writer",
    "coco",
    "get_palette",
    "overlay",
    "read_c_unary",
    "read_image",
    "read_labels",
    "read_npy",
    "read_npz",
    "read_scores",
    "read_unary",
    "voc_colormap",
    "write_image",
    "write_json",
    "write_labels",
    "write_npz",
    "write_text",
]
