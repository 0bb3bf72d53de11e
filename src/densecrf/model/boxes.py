r"""From boxes to objects: colours of both sides, the way from a box's sides, its centre.

Outside its box there is nothing of an object. The log-odds of a pixel inside, against the
background, are

.. math:: \log \frac{p(1 \mid c)}{p(0 \mid c)} + g\,\Bigl(\frac{d}{\bar d} - 1\Bigr)
          + s\,(1 - r^2)

with histograms of the colours of both sides, the geodesic distance d from the outside, which is
long where colours change on the way, and the distance r from the centre, 1 at the sides. As
GrabCut does, the colours are estimated again from the optimum, up to `ROUNDS` times.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from densecrf.model.kernels import color_range, without_alpha
from densecrf.model.masks import box_mask
from densecrf.model.parameters import Parameters
from densecrf.model.presets import get_parameters
from densecrf.model.resolution import derived
from densecrf.model.scribbles import BINS, color_bins, color_costs, geodesics
from densecrf.model.unaries import FORBIDDEN
from densecrf.validation import (
    ArgumentError,
    FloatArray,
    IntArray,
    as_image,
    as_real_array,
    check_choice,
    check_integer,
    mention,
    with_near_names,
)

if TYPE_CHECKING:
    from densecrf.solvers.registry import MethodName
    from densecrf.solvers.result import Result

__all__ = ["BOXES", "from_box"]

#: The model of boxes: kernels of a short reach.
BOXES = Parameters(
    1, 5, 20, 10, 10, pixels=300 * 355, scale_sigmas=True, about="ours, for boxes around objects"
)
KINDS = ("xyxy", "xywh")
ROUNDS = 5  # of estimating colours
AROUND = 0.5  # of a box's side: how much of the outside is looked at
WAY = 1.0  # weight of the geodesic distance, g
CENTRE = 1.0  # weight of the centre, s
MOST = 1.5  # to which both are limited
CERTAINTY = 0.9  # of the colours
CLIP = 5.0  # nats: the most that colours and place say
SETTLED = 1e-3  # of the pixels: fewer changes end the rounds
ROUGH = 1e-2  # gap of all rounds but the last

Bools = npt.NDArray[np.bool_]


@with_near_names
def from_box(
    image: Any,
    box: Any,
    *,
    kind: str = "xyxy",
    model: str | Parameters = BOXES,
    strength: float = 1.0,
    channel_axis: int | None = None,
    image_range: tuple[float, float] | None = None,
    method: "MethodName" = "lp",
    gap: float | None = None,
    time_limit: float | None = None,
    threads: int | None = None,
    device: Any = None,
) -> "Result":
    """Find the object in a box, as ``cv2.grabCut`` does with a rectangle.

    The box should be tight: the object should reach its four sides.

    Parameters
    ----------
    image : array_like, (H, W) or (H, W, channels)
        Grey or colour, up to three channels, as for `densecrf.refine`.
    box : array_like, (4,) or (n, 4)
        x0, y0, x1, y1 in pixels: columns from x0 up to x1, which is excluded, and rows from y0 up
        to y1; numbers need not be whole, pixels count by their centres. Of several boxes, the
        object of the i-th gets label i + 1, and a pixel has one label.
    kind : {"xyxy", "xywh"}
        "xywh" for x0, y0, width, height, as in COCO's files and in ``cv2.grabCut``.
    model : str, path-like or Parameters
        The kernels; as for `densecrf.refine`.
    strength : float
        Factor of the pairwise weights.
    channel_axis : int, optional
        The channel axis of `image`, where it is not the last.
    image_range : (float, float), optional
        The values of black and white in `image`.
    method : str
        One of `densecrf.METHODS`.
    gap : float, optional
        Relative gap at which a method with a lower bound stops; the method's own by default.
    time_limit : float, optional
        Seconds for the last round, after which the best labelling so far is returned.
    threads : int, optional
        Maximum number of threads; the result does not depend on it.
    device : str or torch.device, optional
        Where to solve, for example ``"cuda"``; needs PyTorch.

    Returns
    -------
    densecrf.Result
        ``labels`` (H, W) are 0 for the background and 1 for the object. Energy and bound are those
        of the last round's energy, ``result.crf``: the optimum is of given colour models, which
        depend on the labels of the round before.

    Examples
    --------
    >>> import numpy as np
    >>> image = np.zeros((12, 16, 3), np.uint8)
    >>> image[4:8, 5:12] = 200
    >>> from_box(image, (4, 3, 13, 9)).labels[6]
    array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0])
    """
    colors = color_range(_image(image, channel_axis), image_range)[0]
    inside = _insides(box, kind, colors.shape[:2])
    chosen = get_parameters(model)
    chosen = BOXES if chosen.grain is not None else chosen  # boxes have none
    kernels = chosen.scaled(strength).sized(colors.shape[:2])
    options: dict[str, Any] = {"threads": threads, "device": device}
    rows, columns = _window(inside)
    near, boxes = colors[rows, columns], inside[:, rows, columns]
    place = _place(near, boxes)
    shares = np.where(boxes, 1 / (1 + np.exp(-2 * place)), 0)
    labels: IntArray | None = None
    for _ in range(ROUNDS - 1):
        before = labels
        crf = kernels.crf(_unary(near, boxes, place, shares), near)
        labels = crf.solve(method, gap=ROUGH, **options).labels
        shares = (labels == np.arange(1, len(boxes) + 1)[:, None, None]).astype(float)
        if before is not None and (labels != before).mean() < SETTLED:
            break
    unary = np.full((1 + len(inside), *inside.shape[1:]), FORBIDDEN, np.float32)
    unary[0] = 0
    unary[:, rows, columns] = _unary(near, boxes, place, shares)
    unary.setflags(write=False)
    crf = kernels.crf(unary, colors)
    result = crf.solve(method, gap=gap, time_limit=time_limit, **options)
    result.info["model"] = derived(crf)
    return result


def _image(image: Any, channel_axis: int | None) -> npt.NDArray[Any]:
    """Return the image, (H, W, channels)."""
    array = as_image("image", image)
    if channel_axis is not None and array.ndim == 3:
        check_integer("channel_axis", channel_axis, at_least=-3, at_most=2)
        array = np.moveaxis(array, channel_axis, -1)
    array = without_alpha(array, array.shape[:2])
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or array.size == 0 or array.shape[2] > 3:
        remedy = f"shape {array.shape}; give (height, width) or (height, width, channels) with up "
        remedy += f"to three channels, or say {mention('channel_axis', 0)} where they are first"
        raise ArgumentError("image", ..., remedy)
    return array


def _insides(box: Any, kind: str, shape: tuple[int, int]) -> Bools:
    """Return the pixels whose centre lies in each box, (n, H, W)."""
    check_choice("kind", kind, KINDS)
    array = as_real_array("box", box)
    boxes = np.atleast_2d(array).astype(np.float64)
    if boxes.ndim != 2 or boxes.shape[1] != 4 or not len(boxes):
        remedy = f"shape {array.shape}; give four numbers, x0, y0, x1, y1, or (n, 4) of them"
        raise ArgumentError("box", ..., remedy)
    inside = np.empty((len(boxes), *shape), bool)
    other = mention("kind", KINDS[kind == "xyxy"])
    for each, given in zip(inside, boxes.tolist(), strict=True):
        corners = np.add(given, (0, 0, *given[:2])) if kind == "xywh" else np.array(given)
        each[:] = box_mask(corners, shape)
        remedy = ""
        if not np.isfinite(given).all():
            remedy = "must be finite numbers"
        elif (corners[2:] <= corners[:2]).any():
            remedy = f"has no width or height as {kind}; give its sides in this order, or {other}"
        elif not each.any():
            remedy = f"holds no pixel of an image of {shape[1]} × {shape[0]}; give it in pixels"
        elif each.all():
            remedy = "is the whole image: it leaves no background; give a box around the object"
        if remedy:
            raise ArgumentError("box", given, remedy)
    if inside.any(0).all():
        remedy = "cover the whole image: they leave no background; give fewer at a time"
        raise ArgumentError("box", array.tolist(), remedy)
    return inside


def _window(inside: Bools) -> tuple[slice, slice]:
    """Return the part of the image that says something of the boxes."""
    found = []
    more = round(AROUND * float(np.sqrt(inside.sum((1, 2)).max())))
    for axis in (0, 1):
        (where,) = np.nonzero(inside.any(axis=(0, 2 - axis)))
        found.append(slice(max(0, int(where[0]) - more), int(where[-1]) + 1 + more))
    return found[0], found[1]


def _place(colors: npt.NDArray[Any], inside: Bools) -> FloatArray:
    """Return the log-odds of each object by the way from its box's sides and by the centre."""
    odds = np.zeros(inside.shape, np.float32)
    for plane, box in zip(odds, inside, strict=True):
        distance = geodesics(colors, np.where(box, -1, 0), 1)[0]
        rows, columns = (np.nonzero(box.any(1 - axis))[0] for axis in (0, 1))
        y, x = (2 * (np.arange(len(w)) + 0.5) / len(w) - 1 for w in (rows, columns))
        part = np.ix_(rows, columns)
        way = distance[part] / distance[part].mean() - 1
        plane[part] = WAY * np.clip(way, -MOST, MOST)
        plane[part] += CENTRE * np.clip(1 - y[:, None] ** 2 - x**2, -MOST, MOST)
    return odds


def _unary(
    colors: npt.NDArray[Any], inside: Bools, place: FloatArray, shares: npt.NDArray[np.float64]
) -> FloatArray:
    """Return the energies (1 + n, H, W) for the shares of the objects in each pixel."""
    bins, channels = color_bins(colors), colors.shape[-1]

    def count(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        counts = np.bincount(bins.ravel(), weights.ravel(), minlength=BINS**channels)
        return np.asarray(counts + 1e-9, np.float64)

    unary = np.zeros((1 + len(inside), *bins.shape), np.float32)
    background = count(np.maximum(1 - shares.sum(0), 0))
    for costs, box, odds, share in zip(unary[1:], inside, place, shares, strict=True):
        both = color_costs([background, count(share)], channels, CERTAINTY).take(bins, axis=1)
        costs[:] = np.where(box, np.clip(both[1] - both[0] - odds, -CLIP, CLIP), FORBIDDEN)
    return np.asarray(unary - unary.min(0), np.float32)
