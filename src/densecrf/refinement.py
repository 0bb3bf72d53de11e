"""One call from an image and a network's output, or an annotation, to a labelling."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from densecrf import unaries
from densecrf.layouts import Reading, read, settle_kind
from densecrf.model import DenseCRF
from densecrf.presets import Preset, get_preset
from densecrf.validation import (
    ArgumentError,
    FloatArray,
    as_real_array,
    check_integer,
    check_positive,
    mention,
)

if TYPE_CHECKING:
    from densecrf.result import Result

__all__ = ["build", "color_range", "refine"]

#: What a forbidden label costs a pixel: more than all its neighbours can pay.
FORBIDDEN = 1000.0


def refine(
    image: Any,
    probabilities: Any,
    *,
    preset: str | Preset = "default",
    method: str = "lp",
    max_iterations: int | None = None,
    threads: int | None = None,
    time_limit: float | None = None,
    gap: float | None = None,
    callback: Callable[[Any], Any] | None = None,
    progress: bool = False,
    method_options: dict[str, Any] | None = None,
    **reading: Any,
) -> "Result":
    """Sharpen a network's output, or an annotation, along the edges of its image.

    Parameters
    ----------
    image : array_like
        The image or volume: channels last, channels first, or none. Colours from 0 to 255, or from
        0 to 1 where it holds floating-point numbers; otherwise see `image_range`.
    probabilities : array_like
        What is known of the pixels: probabilities or logits with the label axis first or last,
        one integer label a pixel, or one foreground probability a pixel. Input that can be read
        in two ways is refused, and both are spelled out.
    preset : str or Preset
        Kernel parameters: ``"default"``, ``"pydensecrf"``, ``"deeplab"``, ``"afa"``, ``"cam"``,
        or a `densecrf.presets.Preset`.
    method : str
        One of `densecrf.METHODS`. ``"lp"`` says how far from optimal the answer is.
    max_iterations, threads, time_limit, gap, callback, progress
        See `densecrf.DenseCRF.solve`. Mean field makes the preset's number of iterations unless
        `max_iterations` says otherwise.
    method_options : dict, optional
        The method's own options.
    **reading
        How to read the input; see `build`: ``kind``, ``axis``, ``channel_axis``, ``n_labels``,
        ``void``, ``ignore``, ``seeds``, ``confidence``, ``clip``, ``image_range``,
        ``scale_sigmas``.

    Returns
    -------
    densecrf.Result
        With ``labels`` of the image's shape.

    Examples
    --------
    >>> import numpy as np
    >>> image = np.zeros((4, 6, 3), np.uint8)
    >>> image[:, 3:] = 200
    >>> p = np.where(image[..., :2] < 100, (0.9, 0.1), (0.1, 0.9))  # label axis last
    >>> p[0, 1] = 0.3, 0.7  # a mistake
    >>> refine(image, p, method="mf").labels[0]
    array([0, 0, 0, 1, 1, 1])
    """
    chosen = get_preset(preset)
    crf = build(image, probabilities, preset=chosen, **reading)
    if max_iterations is None and method == "mf":
        max_iterations = chosen.iterations
    return crf.solve(
        method,
        gap=gap,
        time_limit=time_limit,
        max_iterations=max_iterations,
        threads=threads,
        callback=callback,
        progress=progress,
        **(method_options or {}),
    )


def build(
    image: Any,
    probabilities: Any,
    *,
    preset: str | Preset = "default",
    kind: str | None = None,
    axis: int | None = None,
    channel_axis: int | None = None,
    n_labels: int | None = None,
    void: Any = 255,
    ignore: Any = None,
    seeds: Any = None,
    confidence: float | None = None,
    clip: float = 1e-5,
    image_range: tuple[float, float] | None = None,
    scale_sigmas: bool | float = False,
) -> DenseCRF:
    """Return the model that `refine` solves.

    Parameters
    ----------
    image, probabilities, preset
        See `refine`.
    kind : str, optional
        What `probabilities` holds, where it does not show: ``"probabilities"``, ``"logits"``,
        ``"energies"`` or ``"labels"``.
    axis, channel_axis : int, optional
        The label axis of `probabilities` and the channel axis of `image`, where two readings fit.
        With `axis` named, scores of a lower resolution are resized to the image, bilinearly.
    n_labels : int, optional
        Number of labels; needed where `probabilities` are labels and some do not occur.
    void : int, sequence of int or None
        Values of hard labels that mean "could be anything": 255 by default, 0 for pydensecrf's
        unsure label. Such pixels have no unary, and no pixel ends with such a label.
    ignore : array_like of bool, optional
        Pixels whose probabilities are not to be believed; they follow their neighbours.
    seeds : array_like, optional
        Pixels whose label is known: integers of the image's shape, -1 or 255 for the others; or,
        for two labels, True where the foreground (label 1) is certain.
    confidence : float, optional
        Probability that a hard label is right; the preset's by default.
    clip : float
        Smallest probability.
    image_range : (float, float), optional
        The values of `image` that mean black and white.
    scale_sigmas : bool or float
        True scales the standard deviations of positions to the size of the image (presets are
        made for 375 × 500 pixels); a number multiplies them.
    """
    chosen = get_preset(preset)
    reading = read(image, probabilities, kind=kind, axis=axis, channel_axis=channel_axis)
    unary = _unary(
        reading,
        settle_kind(reading, kind),
        n_labels=n_labels,
        void=void,
        confidence=chosen.confidence if confidence is None else confidence,
        clip=clip,
    )
    if seeds is not None:
        _plant(unary, seeds)
    pixels = color_range(reading.image, image_range)
    if scale_sigmas is True:
        factor = chosen.factor(int(np.prod(reading.grid)))
    else:
        factor = check_positive("scale_sigmas", scale_sigmas) if scale_sigmas else 1.0
    return DenseCRF(unary, chosen.kernels(pixels, factor), ignore=ignore)


def _unary(
    reading: Reading,
    kind: str,
    *,
    n_labels: int | None,
    void: Any,
    confidence: float,
    clip: float,
) -> FloatArray:
    """Return the energies (labels, *grid)."""
    values = reading.values
    if kind == "labels":
        return _from_labels(values, n_labels, void, confidence)
    if reading.content == "map":
        if kind == "energies":
            raise ArgumentError(
                "probabilities", ..., "energies need one map a label, (labels, *pixels)"
            )
        zero = np.zeros_like(values, np.float64)
        values = np.stack([zero if kind == "logits" else 1.0 - values, values])
    if n_labels is not None and values.shape[0] != check_integer("n_labels", n_labels, at_least=2):
        raise ArgumentError("n_labels", n_labels, f"the array holds {values.shape[0]} labels")
    if kind == "probabilities":
        return unaries.from_probabilities(values, clip=clip)
    if kind == "logits":
        return unaries.from_logits(values)
    return np.array(values, np.float32, order="C")


def _from_labels(
    values: npt.NDArray[Any], n_labels: int | None, void: Any, confidence: float
) -> FloatArray:
    labels = np.array(values, np.int64)
    if (labels != values).any():
        raise ArgumentError("probabilities", ..., "labels must be whole numbers")
    empty = [] if void is None else [int(value) for value in np.atleast_1d(void)]
    unsure = np.isin(labels, empty)
    if unsure.all():
        raise ArgumentError(
            "probabilities", ..., f"every pixel is void ({empty}); nothing is known"
        )
    largest = int(labels[~unsure].max())
    count = largest + 1 if n_labels is None else n_labels
    if count < 2:
        raise ArgumentError(
            "probabilities",
            ...,
            f"only label {largest} occurs; give {mention('n_labels')}, the number of labels",
        )
    nobody = -2 if (labels[~unsure] == -1).any() else -1  # -1 that is not void is refused
    marked = np.where(unsure, nobody, labels)
    unary = unaries.from_labels(marked, count, confidence=confidence, void=nobody)
    unary[[value for value in empty if 0 <= value < count]] = FORBIDDEN
    return unary


def _plant(unary: FloatArray, seeds: Any) -> None:
    """Forbid every label but the seed's."""
    planted = as_real_array("seeds", seeds)
    if planted.shape != unary.shape[1:]:
        raise ArgumentError("seeds", ..., f"shape {planted.shape} for {unary.shape[1:]} pixels")
    labels = len(unary)
    if planted.dtype == bool:
        if labels != 2:
            raise ArgumentError(
                "seeds",
                ...,
                f"a mask says 'foreground', but there are {labels} labels; give the label "
                "of each seed, and -1 elsewhere",
            )
        planted = np.where(planted, 1, -1)
    index = planted.astype(np.int64)
    free = (index == -1) | (index == 255)
    wrong = ~free & ((index != planted) | (index < 0) | (index >= labels))
    if wrong.any():
        raise ArgumentError(
            "seeds",
            ...,
            f"value {planted[wrong][0]} is neither a label 0 … {labels - 1} nor -1 or 255 "
            "(no seed)",
        )
    other = np.arange(labels).reshape(-1, *([1] * index.ndim)) != index
    unary[other & ~free] = FORBIDDEN


def color_range(
    image: npt.NDArray[Any], image_range: tuple[float, float] | None
) -> npt.NDArray[Any]:
    """Return the image with black at 0 and white at 255, which colour sigmas are made for."""
    if image_range is not None:
        black, white = (float(value) for value in image_range)
        if not white > black:
            raise ArgumentError("image_range", image_range, "give (black, white), black lower")
        shifted = image.astype(np.float64) - black
        return np.asarray(shifted * (255.0 / (white - black)), np.float32)
    low, high = float(image.min()), float(image.max())
    if image.dtype == bool or (image.dtype.kind == "f" and low >= 0 and high <= 1):
        return np.asarray(image * np.float32(255), np.float32)
    if image.dtype == np.uint16 and high > 255:
        return np.asarray(image / np.float32(257), np.float32)
    if low < 0 or high > 255:
        raise ArgumentError(
            "image",
            ...,
            f"values from {low:g} to {high:g}; colour standard deviations are for 0 to 255. "
            "Say which values are black and white, for example "
            f"{mention('image_range', (low, high))}, or undo a network's normalisation",
        )
    return image
