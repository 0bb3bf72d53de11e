r"""From boxes to objects: colours of both sides, and the ways to them.

Outside its box there is nothing of an object. The log-odds of a pixel inside are

.. math:: \log \frac{p_1(c) + \epsilon}{p_0(c) + \epsilon} + k \log \frac{d_0}{d_1} + b

with histograms of the colours in the box, mostly near its centre, and around it, and the geodesic
distances from the outside and from the *core*: the tenth of the box that is furthest from the
outside, nearest to the centre and least like the outside in colour. A constant b stands for what
kernels take from an object at its border. The best pixels of the core are held, since a box
promises an object. Estimating the colours again from the optimum, as GrabCut does, gained nothing.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from densecrf.model.kernels import color_range, without_alpha
from densecrf.model.masks import box_mask
from densecrf.model.parameters import Parameters
from densecrf.model.presets import get_parameters
from densecrf.model.resolution import derived
from densecrf.model.scribbles import BINS, NEAREST, color_bins, geodesics, histogram
from densecrf.model.unaries import FORBIDDEN
from densecrf.validation import (
    ArgumentError,
    FloatArray,
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
    2, 8, 20, 5, 10, pixels=300 * 355, scale_sigmas=True, about="ours, for boxes around objects"
)
KINDS = ("xyxy", "xywh")
AROUND = 0.5  # of a box's side: how much of the outside is looked at
BLUR = 0.65  # bins: colours are many, unlike those under strokes
LEAST = 1e-5  # probability of a colour
POWER = 0.7  # of the distances, k
BIAS = 0.4  # nats, b
CORE = 0.1  # share of a box that is its core
HELD = 0.01  # share of a box that is held
CLIP = 5.0  # nats: the most that colours and ways say

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
        Seconds after which the best labelling so far is returned.
    threads : int, optional
        Maximum number of threads; the result does not depend on it.
    device : str or torch.device, optional
        Where to solve, for example ``"cuda"``; needs PyTorch.

    Returns
    -------
    densecrf.Result
        ``labels`` (H, W) are 0 for the background and 1 for the object. Energy and bound are of
        ``result.crf``, whose unaries are made from the box.

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
    rows, columns = _window(inside)
    near = colors[rows, columns]
    unary = np.full((1 + len(inside), *inside.shape[1:]), FORBIDDEN, np.float32)
    unary[0] = 0
    for costs, box in zip(unary[1:], inside[:, rows, columns], strict=True):
        costs[rows, columns] = np.where(box, -_odds(near, box), FORBIDDEN)
    unary -= unary.min(0)
    unary.setflags(write=False)
    crf = kernels.crf(unary, colors)
    options: dict[str, Any] = {"threads": threads, "device": device}
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
            raise ArgumentError("box", tuple(given), remedy)
    if inside.any(0).all():
        remedy = "cover the whole image: they leave no background; give fewer at a time"
        raise ArgumentError("box", array.tolist(), remedy)
    return inside


def _window(inside: Bools) -> tuple[slice, slice]:
    """Return the part of the image that says something of the boxes."""
    found = []
    more = max(1, round(AROUND * float(np.sqrt(inside.sum((1, 2)).max()))))
    for axis in (0, 1):
        (where,) = np.nonzero(inside.any(axis=(0, 2 - axis)))
        found.append(slice(max(0, int(where[0]) - more), int(where[-1]) + 1 + more))
    return found[0], found[1]


def _odds(colors: npt.NDArray[Any], box: Bools) -> FloatArray:
    """Return the log-odds of the object in a box, (H, W); those outside say nothing."""
    rows, columns = (np.nonzero(box.any(1 - axis))[0] for axis in (0, 1))
    inside = np.ix_(rows, columns)
    y, x = (2 * (np.arange(len(each)) + 0.5) / len(each) - 1 for each in (rows, columns))
    centre = np.zeros(box.shape, np.float32)
    centre[inside] = np.clip(1 - y[:, None] ** 2 - x**2, -1.5, 1)
    share = np.where(box, 1 / (1 + np.exp(-2 * centre)), 0)
    bins, channels = color_bins(colors), colors.shape[-1]

    def likelihood(weights: npt.NDArray[Any]) -> FloatArray:
        counts = np.bincount(bins.ravel(), weights.ravel(), minlength=BINS**channels)
        return np.asarray(histogram(counts, channels, BLUR).take(bins) + LEAST, np.float32)

    odds = np.log(likelihood(share) / likelihood(~box))
    outside = geodesics(colors, np.where(box, -1, 0), 1)[0]
    rank = np.searchsorted(np.sort(outside[inside].ravel()), outside) / box.sum()
    score = np.where(box, 2 * rank + centre + odds, -np.inf)
    best = np.sort(score[inside].ravel())

    def among(part: float) -> Bools:
        return np.asarray(score >= best[-max(1, round(part * best.size))])

    core = geodesics(colors, np.where(among(CORE), 0, -1), 1)[0]
    odds += POWER * np.log((outside + NEAREST) / (core + NEAREST)) + BIAS
    return np.where(among(HELD), FORBIDDEN, np.clip(odds, -CLIP, CLIP)).astype(np.float32)
