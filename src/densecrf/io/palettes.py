"""Class lists and colours of MSRC-21, Pascal VOC and CamVid, and colour <-> index conversion."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf.cached import cached_property
from densecrf.colors import label_colors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = [
    "CAMVID",
    "CAMVID32",
    "MSRC",
    "PALETTES",
    "VOC",
    "Palette",
    "get_palette",
    "voc_colormap",
]

RGB = tuple[int, int, int]
MOST_SAFE = 1000  # labels whose colours by hue are all different


def voc_colormap(count: int = 256) -> NDArray[np.uint8]:
    """Return the Pascal VOC colours: the index's bits go to red, green and blue in turn.

    Parameters
    ----------
    count
        Number of colours, 1 to 65536; all are different.

    Returns
    -------
    ndarray
        ``(count, 3)`` uint8.

    Examples
    --------
    >>> voc_colormap(4).tolist()
    [[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0]]
    """
    if not 1 <= count <= 65536:
        raise ValueError(f"count={count} must be between 1 and 65536")
    index = np.arange(count)
    colors = np.zeros((count, 3), np.int64)
    for bit in range(8):
        for channel in range(3):
            colors[:, channel] |= (index >> (3 * bit + channel) & 1) << (7 - bit)
    return colors.astype(np.uint8)


@dataclass(frozen=True)
class Palette:
    """The classes of a data set with their colours.

    Attributes
    ----------
    name
        Name of the data set.
    classes
        Class names; the position is the label.
    colors
        One RGB triple per class, for writing.
    void
        The label of pixels without a class.
    void_color
        The colour of such pixels.
    merged
        Further colours in ground truth, with their labels.
    """

    name: str
    classes: tuple[str, ...]
    colors: tuple[RGB, ...]
    void: int = 255
    void_color: RGB = (0, 0, 0)
    merged: Mapping[RGB, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not self.classes or len(self.classes) != len(self.colors):
            raise ValueError(
                f"palette {self.name!r} has {len(self.classes)} classes and "
                f"{len(self.colors)} colors: give one colour per class, and at least one class"
            )
        if 0 <= self.void < len(self.classes):
            raise ValueError(
                f"palette {self.name!r}: void={self.void} is also the label of "
                f"{self.classes[self.void]!r}; choose a void label outside 0..{len(self) - 1}"
            )

    def __len__(self) -> int:
        """Return the number of classes without void."""
        return len(self.classes)

    @classmethod
    def generic(cls, classes: int | tuple[str, ...], void: int = 255) -> Palette:
        """Return a palette for class names or a number of classes.

        The colours are those of `densecrf.colors.label_colors`, the first ones safe for
        colour-blind people; Pascal VOC's are read as well. If ``void`` is the label of a class,
        65535 takes its place.

        Examples
        --------
        >>> Palette.generic(3).classes
        ('0', '1', '2')
        """
        names = tuple(map(str, range(classes))) if isinstance(classes, int) else tuple(classes)
        return _generic(names, 65535 if 0 <= void < len(names) else void)

    def with_void(self, void: int) -> Palette:
        """Return the same classes and colours with another void label."""
        merged = {c: void if label == self.void else label for c, label in self.merged.items()}
        return replace(self, void=void, merged=merged)

    @cached_property
    def table(self) -> NDArray[np.uint8]:
        """The colours as ``(256, 3)``, or longer with more classes; the last is void's."""
        table = np.tile(np.array(self.void_color, np.uint8), (max(256, len(self) + 1), 1))
        table[: len(self)] = self.colors
        return table

    @cached_property
    def _codes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Sorted 24-bit colour codes that may occur in ground truth, and their labels."""
        labels = {
            self.void_color: self.void,
            **dict(self.merged),
            # Reversed: of several classes with one colour, the first is kept.
            **{color: label for label, color in reversed(list(enumerate(self.colors)))},
        }
        codes = _encode(np.array(list(labels), np.int64))
        order = np.argsort(codes)
        return codes[order], np.array(list(labels.values()), np.int64)[order]

    def to_colors(self, labels: Any) -> NDArray[np.uint8]:
        """Paint labels in the palette's colours: any shape in, ``(..., 3)`` uint8 out.

        Examples
        --------
        >>> VOC.to_colors([0, 15, 255]).tolist()
        [[0, 0, 0], [192, 128, 128], [224, 224, 192]]
        """
        index = self.check(labels)
        return self.table[np.where(index == self.void, len(self.table) - 1, index)]

    def to_labels(self, colors: Any) -> NDArray[np.int32]:
        """Turn painted ground truth ``(..., 3)`` into labels, void included.

        Raises
        ------
        ValueError
            For colours outside the palette; it names the first, its position and their number.

        Examples
        --------
        >>> MSRC.to_labels([[0, 128, 0], [0, 0, 0]]).tolist()
        [1, 255]
        """
        rgb = np.asarray(colors)
        if rgb.ndim < 1 or rgb.shape[-1] != 3 or rgb.dtype.kind not in "ui":
            raise ValueError(
                f"colors of shape {rgb.shape} and type {rgb.dtype} must be integers (..., 3)"
            )
        wanted = _encode(rgb.astype(np.int64))
        codes, labels = self._codes
        place = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
        unknown = codes[place] != wanted
        if unknown.any():
            first = tuple(int(i) for i in np.argwhere(unknown)[0])
            raise ValueError(
                f"colour {tuple(int(v) for v in rgb[first])} at {first} is not in the palette "
                f"{self.name!r} ({int(unknown.sum())} such pixels); choose another palette, or "
                "save the ground truth without lossy compression"
            )
        return labels[place].astype(np.int32)

    def check(self, labels: Any) -> NDArray[np.int32]:
        """Return labels as int32 after checking that each is a class or void.

        Examples
        --------
        >>> VOC.check([[3, 21]])
        Traceback (most recent call last):
            ...
        ValueError: label 21 at (0, 1) is outside the 21 classes of 'voc' (0..20, void 255);
        1 such pixel
        """
        values = np.asarray(labels)
        if values.dtype.kind not in "uib":
            raise ValueError(f"labels of type {values.dtype} must be integers")
        bad = (values != self.void) & ((values < 0) | (values >= len(self)))
        if bad.any():
            first = tuple(int(i) for i in np.argwhere(bad)[0])
            count = int(bad.sum())
            raise ValueError(
                f"label {int(values[first])} at {first} is outside the {len(self)} classes of "
                f"{self.name!r} (0..{len(self) - 1}, void {self.void}); "
                f"{count} such pixel{'s' if count > 1 else ''}"
            )
        return values.astype(np.int32)


def get_palette(palette: str | Palette) -> Palette:
    """Look a palette up by name: ``msrc``, ``voc``, ``camvid`` or ``camvid32``.

    Examples
    --------
    >>> len(get_palette("camvid"))
    11
    """
    if isinstance(palette, Palette):
        return palette
    try:
        return PALETTES[palette.lower()]
    except KeyError:
        raise ValueError(
            f"palette {palette!r} is unknown; choose one of {', '.join(PALETTES)}"
        ) from None


def _encode(rgb: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the 24-bit code of every colour, -1 for values outside 8 bits."""
    code = rgb[..., 0] << 16 | rgb[..., 1] << 8 | rgb[..., 2]
    return np.where((rgb < 0).any(-1) | (rgb > 255).any(-1), -1, code)


@lru_cache(maxsize=64)  # every picture of a folder has the same
def _generic(names: tuple[str, ...], void: int) -> Palette:
    voc = _triples(voc_colormap(max(1, len(names))))[: len(names)]
    colors = voc  # all different, for any number
    if len(names) <= MOST_SAFE:
        colors = _triples(np.rint(255 * label_colors(len(names))).astype(np.uint8))
    merged = {color: label for label, color in enumerate(voc[:255])}
    return Palette("generic", names, colors, void, (224, 224, 192), merged)


def _triples(colors: NDArray[np.uint8]) -> tuple[RGB, ...]:
    return tuple((int(r), int(g), int(b)) for r, g, b in colors)


def _read_palettes() -> dict[str, Palette]:
    """Read the built-in palettes.

    The file has for every class its colour, then further colours that ground truth uses for it,
    and likewise for void. MSRC's void colours include horse and mountain, which are too rare to
    train on and count as void everywhere in the literature.
    """
    stored = json.loads(Path(__file__).with_name("palettes.json").read_text("ascii"))
    palettes = {}
    for name, palette in stored.items():
        first, *others = zip_longest(*(map(_rgb, c.split()) for c in palette["classes"].values()))
        void, *also_void = map(_rgb, palette["void"].split())
        merged = {c: label for row in others for label, c in enumerate(row) if c is not None}
        merged.update(dict.fromkeys(also_void, 255))
        classes = tuple(palette["classes"])
        palettes[name] = Palette(name, classes, first, void_color=void, merged=merged)
    return palettes


def _rgb(code: str) -> RGB:
    red, green, blue = bytes.fromhex(code)
    return red, green, blue


PALETTES = _read_palettes()
MSRC, VOC, CAMVID, CAMVID32 = PALETTES.values()
