"""From a document to its energy: the model of the settings, and unaries from strokes."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from densecrf.app.document import Document, ModelSettings
from densecrf.app.full_size import side_of_blocks, unary_of_strokes
from densecrf.app.pictures import Picture
from densecrf.app.strokes import VOID, Canvas, Raster, Stroke
from densecrf.cached import cached_property
from densecrf.model.crf import DenseCRF
from densecrf.model.parameters import Parameters
from densecrf.model.presets import PRESETS
from densecrf.model.reading import layout_of, picked, sums_to_one
from densecrf.model.resample import resize_bilinear
from densecrf.model.scribbles import for_strokes
from densecrf.model.specification import Specification
from densecrf.model.unaries import plant

if TYPE_CHECKING:
    from densecrf.model.resolution import Measured
    from densecrf.operators.pairwise import Pairwise

__all__ = ["Energies", "Snapshot"]


@dataclass(frozen=True)
class Snapshot:
    """A document at one moment, to be solved."""

    revision: int
    strokes: tuple[Stroke, ...]
    canvas: Canvas
    n_labels: int
    settings: ModelSettings
    factor: float = 1  # of its size to that of the document

    @property
    def min_area(self) -> int:
        """Pixels of the smallest island that stays, of an image of this size."""
        return round(self.settings.min_area * self.factor**2)

    @cached_property
    def raster(self) -> Raster:
        """The label raster of the strokes, drawn by the thread that first asks."""
        return self.canvas.raster(self.strokes)

    @classmethod
    def of(cls, document: Document) -> "Snapshot":
        """Return a document as it is now."""
        strokes, count = tuple(document.strokes), len(document.labels)
        return cls(document.revision, strokes, document.canvas, count, document.settings)

    @classmethod
    def enlarged(cls, document: Document, factor: float, shape: tuple[int, ...]) -> "Snapshot":
        """Return a document as it is now, its strokes drawn on an image that is larger."""
        snapshot = cls.of(document)
        strokes = tuple(stroke.enlarged(factor) for stroke in snapshot.strokes)
        return replace(snapshot, strokes=strokes, canvas=Canvas(shape), factor=factor)


class Energies:
    """The energies of one image; filters are kept while the settings stay.

    Parameters
    ----------
    picture : Picture
        The image.
    known, kind
        A network's output, as `densecrf.refine` reads it, which strokes then correct.
    file : Parameters, optional
        The model that the preset ``"file"`` means.
    start, n_labels
        Labels (H, W) of `n_labels` classes, 255 for none, which strokes then correct.
    """

    def __init__(
        self,
        picture: Picture,
        known: npt.NDArray[Any] | None = None,
        kind: str | None = None,
        file: Parameters | None = None,
        *,
        start: npt.NDArray[np.uint8] | None = None,
        n_labels: int | None = None,
    ) -> None:
        self.picture, self.file, self.start = picture, file, start
        self.unary: npt.NDArray[np.float32] | None = None
        self.axis: int | None = None  # the labels', where the scores are reduced with the image
        self._found: Measured | None = None
        self._largest = float(np.abs(picture.pixels).max())
        self._kept: tuple[Parameters, Pairwise] | None = None
        if start is not None:
            self._read(start, "labels", n_labels)
        elif known is not None:
            self._read(known, kind)

    def _read(self, known: npt.NDArray[Any], kind: str | None, n_labels: int | None = None) -> None:
        picture = self.picture
        if picture.factor > 1 and self.start is None:  # scores fit the image of the file
            layout = layout_of(
                (*picture.shape[:-2], *picture.full),
                known.shape,
                known.dtype,
                kind=kind,
                axis=None,
                channel_axis=None,
                adds_up=lambda axes, total: sums_to_one(picked(known, axes), total=total),
                fractions=lambda: True,
            )
            if layout.content != "scores":
                raise ValueError("is not a score map; an image of this size needs one")
            self.axis = layout.axes[0]
            known = resize_bilinear(picked(known, layout.axes), picture.shape)
        asked = Specification(
            kind=kind,
            axis=None if self.axis is None else 0,
            channel_axis=None if picture.pixels.shape == picture.shape else -1,
            image_range=(0, 255),
            n_labels=n_labels,
        )
        crf = asked.crf(picture.pixels, known)
        self.unary, self._found = crf.unary.reshape(-1, *crf.shape), crf.measured

    def model(self, snapshot: Snapshot) -> Parameters:
        """Return the model that the sliders make of a preset, or of the model given at the start.

        On an image that is larger by the snapshot's factor, standard deviations of positions grow
        as well, where they do not follow the image or its scores anyway.
        """
        settings = snapshot.settings
        given = self.file if settings.preset == "file" else None
        model = given or PRESETS.get(settings.preset, PRESETS["scribbles"])
        times = 1 if model.scale_sigmas or model.grain is not None else snapshot.factor
        model = for_strokes(model) if self._found is None else model.following(self._found)
        found = replace(
            model.scaled(settings.strength),
            sigma=model.sigma * times,
            sigma_color=model.sigma_color / settings.color,
            sigma_xy=model.sigma_xy * settings.reach * times,
        )
        distances = self.picture.distances
        return found if distances is None or len(set(distances)) == 1 else found.spaced(distances)

    def labels(self, snapshot: Snapshot) -> list[int]:
        """Return the labels that the answer may have."""
        if self.unary is not None:
            return list(range(len(self.unary)))
        if self.model(snapshot).label_costs is not None:
            return list(range(snapshot.n_labels))
        return [int(label) for label in np.unique(snapshot.raster) if label != VOID]

    def problem(self, snapshot: Snapshot) -> tuple[DenseCRF, list[int]]:
        """Return the energy over the labels that have strokes, and these labels."""
        labels = self.labels(snapshot)
        number = np.full(256, VOID, np.uint8)
        number[labels] = np.arange(len(labels))
        return self._energy(snapshot, number[snapshot.raster], len(labels)), labels

    def reproducible(self, snapshot: Snapshot) -> DenseCRF:
        """Return the energy over all labels up to the last with strokes, as a command makes it."""
        labels = self.labels(snapshot)
        return self._energy(snapshot, snapshot.raster, max(labels, default=0) + 1)

    def forget(self) -> None:
        """Give up the filters; they are built again where they are needed."""
        self._kept = None

    def _energy(self, snapshot: Snapshot, raster: Raster, count: int) -> DenseCRF:
        model = self.model(snapshot)
        if self.unary is None:
            blocks = side_of_blocks(self.picture.shape)
            unary = unary_of_strokes(self.picture.pixels, raster, count, blocks=blocks, void=VOID)
        else:
            unary = self.unary.copy()
            plant(unary, np.where(raster == VOID, -1, raster.astype(np.int64)))
        crf = model.crf(unary, self.picture.pixels, largest=self._largest)
        if self._kept is None or self._kept[0] != model:
            self._kept = model, crf.pairwise
        return crf.with_pairwise(self._kept[1])
