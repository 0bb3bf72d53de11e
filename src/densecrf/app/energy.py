"""From a document to its energy: the model of the settings, and unaries from strokes."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.app.document import Document, ModelSettings
from densecrf.app.pictures import Picture
from densecrf.app.strokes import VOID, Canvas, Raster, Stroke
from densecrf.cached import cached_property
from densecrf.model.compatibility import with_label_costs
from densecrf.model.crf import DenseCRF
from densecrf.model.parameters import Parameters
from densecrf.model.presets import PRESETS
from densecrf.model.scribbles import scribble_unary
from densecrf.model.unaries import plant

__all__ = ["Energies", "Snapshot", "chosen_model"]


def chosen_model(settings: ModelSettings, file: Parameters | None, enlarged: int = 1) -> Parameters:
    """Return the model that the sliders make of a preset, or of the model given at the start.

    For an image `enlarged` by a factor its standard deviations of positions grow, where they do
    not follow the image's size anyway.
    """
    model = file if settings.preset == "file" and file is not None else PRESETS.get(settings.preset)
    if model is None or model.grain is not None:  # for the errors of networks; strokes have none
        model = PRESETS["scribbles"]
    times = 1 if model.scale_sigmas else enlarged
    return replace(
        model.scaled(settings.strength),
        sigma=model.sigma * times,
        sigma_color=model.sigma_color / settings.color,
        sigma_xy=model.sigma_xy * settings.reach * times,
    )


@dataclass(frozen=True)
class Snapshot:
    """A document at one moment, to be solved."""

    revision: int
    strokes: tuple[Stroke, ...]
    canvas: Canvas
    n_labels: int
    settings: ModelSettings
    factor: int = 1  # of its size to that of the document

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
    def enlarged(cls, document: Document, factor: int, shape: tuple[int, int]) -> "Snapshot":
        """Return a document as it is now, its strokes drawn on an image that is larger."""
        snapshot = cls.of(document)
        strokes = tuple(stroke.enlarged(factor) for stroke in snapshot.strokes)
        return replace(snapshot, strokes=strokes, canvas=Canvas(shape), factor=factor)


class Energies:
    """The energies of one image; kernels and filters are kept while the settings stay.

    Parameters
    ----------
    picture : Picture
        The image.
    unary : ndarray, (labels, H, W), optional
        Energies of a network's output, which strokes then correct.
    file : Parameters, optional
        The model that the preset ``"file"`` means.
    """

    def __init__(
        self,
        picture: Picture,
        unary: npt.NDArray[np.float32] | None = None,
        file: Parameters | None = None,
    ) -> None:
        self.picture, self.unary, self.file = picture, unary, file
        self._kept: tuple[Parameters, DenseCRF] | None = None

    def labels(self, snapshot: Snapshot) -> list[int]:
        """Return the labels that the answer may have."""
        model = chosen_model(snapshot.settings, self.file, snapshot.factor)
        if self.unary is not None or model.label_costs is not None:
            return list(range(snapshot.n_labels if self.unary is None else len(self.unary)))
        return [int(label) for label in np.unique(snapshot.raster) if label != VOID]

    def problem(self, snapshot: Snapshot) -> tuple[DenseCRF, list[int]]:
        """Return the energy over the labels that have strokes, and those labels.

        Raises
        ------
        ValueError
            Where there are too few strokes.
        """
        labels = self.labels(snapshot)
        number = np.full(256, VOID, np.uint8)
        number[labels] = np.arange(len(labels))
        return self._energy(snapshot, number[snapshot.raster], len(labels)), labels

    def reproducible(self, snapshot: Snapshot) -> DenseCRF:
        """Return the energy over all labels up to the last with strokes, as a command makes it."""
        labels = self.labels(snapshot)
        return self._energy(snapshot, snapshot.raster, max(labels, default=0) + 1)

    def _energy(self, snapshot: Snapshot, raster: Raster, count: int) -> DenseCRF:
        model = chosen_model(snapshot.settings, self.file, snapshot.factor)
        if self.unary is None:
            unary: Any = scribble_unary(self.picture.pixels, raster, count, void=VOID)
        else:
            unary = self.unary.copy()
            plant(unary, np.where(raster == VOID, -1, raster.astype(np.int64)))
        costs: Any = model.label_costs
        plain = replace(model, label_costs=None)
        if self._kept is None or self._kept[0] != plain:
            self._kept = plain, plain.crf(unary, self.picture.pixels)
        crf = self._kept[1].with_unary(unary)
        return crf if costs is None else with_label_costs(crf, costs)
