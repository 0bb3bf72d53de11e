r"""Gaussian kernels: features of an image's pixels.

A kernel gives every pixel a feature vector :math:`f_a`, in units of standard deviations, and a
weight :math:`w`; its part of the pairwise potential is
:math:`w \exp(-\tfrac12 \lVert f_a - f_b \rVert^2)` (Eq. 2 of the paper).
"""

import math
from dataclasses import InitVar, dataclass, field
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from densecrf.validation import (
    LARGEST_FEATURE,
    ArgumentError,
    as_features,
    as_image,
    as_real_array,
    check_finite,
    check_fits,
    check_integer,
    check_non_negative,
    check_pixels,
    mention,
    sigmas,
    warn,
)

__all__ = [
    "Bilateral",
    "Features",
    "Kernel",
    "Spatial",
    "black_and_white",
    "check_extent",
    "check_opaque",
    "color_range",
    "position_dtype",
    "without_alpha",
]

FAR = 2.0**15  # standard deviations from the origin beyond which single precision is too coarse


class Kernel(Protocol):
    """The interface of kernels."""

    @property
    def weight(self) -> float:
        """The kernel's weight over unordered pairs."""
        ...

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse a grid of this shape, where it does not fit, without computing features."""
        ...

    def features(self, shape: tuple[int, ...]) -> npt.NDArray[np.floating[Any]]:
        """Return the features (n, d) of a grid of pixels of this shape, which passed `check`."""
        ...


class _Shown:
    """Kernels in notebooks."""

    def _repr_html_(self) -> str:
        from densecrf.display import kernel_html

        return kernel_html(self)


@dataclass(frozen=True, eq=False)
class Spatial(_Shown):
    """Spatial kernel: nearby pixels tend to have equal labels.

    Parameters
    ----------
    sigma : float or sequence of float
        Standard deviation in pixels; one number, or one for each axis of the image in the order
        of its axes (for example ``(5, 1, 1)`` for a volume with thick slices).
    weight : float
        Weight of the kernel over unordered pairs of pixels.

    Examples
    --------
    >>> Spatial(sigma=2).features((2, 2))
    array([[0. , 0. ],
           [0.5, 0. ],
           [0. , 0.5],
           [0.5, 0.5]], dtype=float32)
    """

    sigma: Any
    weight: float = 1.0

    def __post_init__(self) -> None:
        """Check the weight; sigma is checked with the image's axes."""
        object.__setattr__(self, "weight", check_non_negative("weight", self.weight))
        sigmas("sigma", self.sigma, as_real_array("sigma", self.sigma).size, "axes")

    def axis_sigmas(self, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Return the standard deviation along each axis."""
        return sigmas("sigma", self.sigma, len(shape), "axes of the image")

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse standard deviations that do not fit the grid."""
        _check_positions("sigma", self.axis_sigmas(shape), shape)

    def features(self, shape: tuple[int, ...]) -> npt.NDArray[np.floating[Any]]:
        """Return the scaled positions, last axis (x) first, of a grid that passed `check`."""
        return _positions(shape, self.axis_sigmas(shape))


def largest_value(
    image: npt.NDArray[Any],
    sigma: npt.NDArray[np.floating[Any]],
    name: str = "image",
    sigma_name: str = "sigma_color",
) -> float:
    """Return the largest absolute value of a finite image; warn of one from 0 to 1."""
    low, high = check_finite(name, image)
    if image.dtype.kind == "f" and 0 <= low < high <= 1 and (sigma >= 1).all():
        warn(
            name,
            f"values from {low:g} to {high:g}, for which {mention(sigma_name)} of "
            f"{sigma.min():g} ignores all edges: give 255 * {name}, or divide {sigma_name} by 255",
        )
    return max(-low, high)


@dataclass(frozen=True, eq=False, repr=False)
class Bilateral(_Shown):
    """Bilateral kernel: nearby pixels of similar colour tend to have equal labels.

    Parameters
    ----------
    image : array_like
        Image of the pixels, ``(*spatial)`` for one channel or ``(*spatial, channels)``; any real
        dtype, order or strides. Any number of channels.
    sigma_xy : float or sequence of float
        Standard deviation of the position in pixels, one or one for each axis.
    sigma_color : float or sequence of float
        Standard deviation of the image's values, in *their* units: the usual numbers (3 to 20)
        are for images from 0 to 255. One, or one for each channel.
    weight : float
        Weight of the kernel over unordered pairs of pixels.
    channel_axis : int, optional
        The axis of `image` that holds the channels; by default the last, where there is one axis
        more than the model's grid has.
    largest : float, optional
        The largest absolute value of an image that is known to be finite; saves a scan.
    """

    image: Any
    sigma_xy: Any
    sigma_color: Any
    weight: float = 1.0
    channel_axis: int | None = None
    largest: InitVar[float | None] = None
    _largest: float = field(init=False, repr=False)

    def __post_init__(self, largest: float | None) -> None:
        """Check what does not depend on the model's grid."""
        object.__setattr__(self, "weight", check_non_negative("weight", self.weight))
        image = as_image("image", self.image)
        if image.size == 0:
            raise ArgumentError("image", ..., f"shape {image.shape} holds no pixels")
        check_fits("image", image.shape)
        if self.channel_axis is not None:
            axis = check_integer("channel_axis", self.channel_axis, at_least=-image.ndim)
            if axis >= image.ndim:
                raise ArgumentError("channel_axis", axis, f"the image has {image.ndim} axes only")
            image = np.moveaxis(image, axis, -1)
        object.__setattr__(self, "image", image)
        sigmas("sigma_xy", self.sigma_xy, as_real_array("sigma_xy", self.sigma_xy).size, "axes")
        channels = as_real_array("sigma_color", self.sigma_color).size
        colors = sigmas("sigma_color", self.sigma_color, channels, "channels")
        if largest is None:
            largest = largest_value(image, colors)
        object.__setattr__(self, "_largest", largest)

    def __repr__(self) -> str:
        """Return one line."""
        size = " × ".join(map(str, np.shape(self.image)))
        return (
            f"Bilateral({size} image, sigma_xy={self.sigma_xy}, sigma_color={self.sigma_color}, "
            f"weight={self.weight})"
        )

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse an image of another grid, and standard deviations that do not fit it."""
        image = self._channels_last(shape)
        _check_positions("sigma_xy", self._axis_sigmas(shape), shape)
        check_fits("image: its features", (*shape, len(shape) + image.shape[-1]))
        colors = self._channel_sigmas(image)
        if self._largest <= LARGEST_FEATURE * colors.min():
            return
        for sigma, plane in zip(colors, np.moveaxis(image, -1, 0), strict=True):
            check_extent("sigma_color", sigma, max(abs(float(plane.min())), float(plane.max())))

    def features(self, shape: tuple[int, ...]) -> npt.NDArray[np.floating[Any]]:
        """Return scaled positions (last axis first) and colours of a grid that passed `check`."""
        image = self._channels_last(shape)
        d, channels = len(shape), image.shape[-1]
        positions = _positions(shape, self._axis_sigmas(shape))
        out = np.empty((math.prod(shape), d + channels), positions.dtype)
        out[:, :d] = positions
        for c, sigma in enumerate(self._channel_sigmas(image)):
            out[:, d + c] = (image[..., c].astype(np.float64).ravel() / sigma).astype(np.float32)
        return out

    def _axis_sigmas(self, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        return sigmas("sigma_xy", self.sigma_xy, len(shape), "axes of the image")

    def _channel_sigmas(self, image: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        return sigmas("sigma_color", self.sigma_color, image.shape[-1], "channels of the image")

    def _channels_last(self, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        image: npt.NDArray[Any] = self.image
        if self.channel_axis is None and image.shape == shape:
            return image[..., None]
        if image.shape[:-1] == shape:
            return image
        raise ArgumentError(
            "image",
            ...,
            f"shape {image.shape} does not fit a grid of {shape} pixels; give {shape} for "
            f"one channel or {(*shape, 'channels')}, or name the channels' axis by "
            + mention("channel_axis"),
        )


@dataclass(frozen=True, eq=False, repr=False)
class Features(_Shown):
    """Any features: point clouds, meshes, superpixels, multispectral stacks.

    Parameters
    ----------
    values : array_like
        Array (n, d), one row per pixel in C order, already divided by the standard deviations.
    weight : float
        Weight of the kernel over unordered pairs.
    """

    values: Any
    weight: float = 1.0

    def __post_init__(self) -> None:
        """Check the array."""
        object.__setattr__(self, "weight", check_non_negative("weight", self.weight))
        object.__setattr__(self, "values", as_features(self.values))

    def __repr__(self) -> str:
        """Return one line."""
        size = " × ".join(map(str, np.shape(self.values)))
        return f"Features({size} values, weight={self.weight})"

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse a grid with another number of pixels."""
        rows, n = len(self.values), math.prod(shape)
        if rows != n:
            raise ArgumentError("features", ..., f"{rows} rows for {n} pixels (grid {shape})")

    def features(self, shape: tuple[int, ...]) -> npt.NDArray[np.floating[Any]]:
        """Return the given features."""
        self.check(shape)
        return cast("npt.NDArray[np.floating[Any]]", self.values)


def color_range(
    image: npt.NDArray[Any], image_range: tuple[float, float] | None
) -> tuple[npt.NDArray[Any], float]:
    """Return an image with black at 0 and white at 255, and its largest absolute value."""
    low, high = check_finite("image", image)
    found = black_and_white(low, high, image.dtype, image_range)
    if found is None:
        return image, high
    black, white = found
    scale = 255.0 / (white - black)
    pixels = np.asarray((image - np.float64(black)) * scale, np.float32)
    return pixels, max(abs(low - black), abs(high - black)) * scale


def black_and_white(
    low: float, high: float, dtype: np.dtype[Any], image_range: tuple[float, float] | None
) -> tuple[float, float] | None:
    """Return the values of black and white of an image with values from `low` to `high`.

    None where they are 0 and 255 already.
    """
    if image_range is not None:
        black, white = image_range if np.shape(image_range) == (2,) else (0.0, 0.0)
        if not white > black:
            raise ArgumentError("image_range", image_range, "give (black, white), black lower")
    elif dtype.kind == "b" or (dtype.kind == "f" and low >= 0 and high <= 1):
        black, white = 0.0, 1.0
    elif low >= 0 and high <= 255:
        return None
    elif dtype == np.uint16 and high >= 2**15:
        black, white = 0.0, 65535.0
    else:
        remedy = (
            f"values from {low:g} to {high:g}; colour standard deviations are for 0 to 255. Say "
            "which values are black and white, for example "
        )
        if dtype == np.uint16:
            full, most = 2 ** int(high).bit_length() - 1, mention("image_range", (0, 65535))
            remedy += f"{mention('image_range', (0, full))}, or {most} for a dark image of 16 bits"
        else:
            remedy += f"{mention('image_range', (low, high))}, or undo a network's normalisation"
        raise ArgumentError("image", ..., remedy)
    return black, white


def without_alpha(image: npt.NDArray[Any], grid: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return an image over the grid without its alpha channel, where that is opaque.

    Files are read without alpha, and a constant channel contributes nothing to a Gaussian kernel.
    """
    if image.shape != (*grid, 4):
        return image
    check_opaque(image[..., 3], image.shape)
    return image[..., :3]


def check_opaque(alpha: npt.NDArray[Any], shape: tuple[int, ...]) -> None:
    """Refuse the fourth channel of an image of this shape as its alpha channel where it varies."""
    if (alpha != alpha.flat[0]).any():
        remedy = f"shape {shape} can be read in 2 ways: colours and an alpha channel that varies "
        remedy += "(leave it out: image[..., :3]); or four channels "
        raise ArgumentError("image", ..., f"{remedy}({mention('channel_axis', -1)}). Say which")


def position_dtype(shape: tuple[int, ...], scales: Any) -> Any:
    """Return the precision of a grid's positions: double where they are far from the origin."""
    furthest = max((side - 1) / sigma for side, sigma in zip(shape, scales, strict=True))
    return np.float32 if furthest < FAR else np.float64


def _positions(shape: tuple[int, ...], scales: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
    """Return the grid's positions over their standard deviations, last axis first."""
    out = np.empty((math.prod(shape), len(shape)), position_dtype(shape, scales))
    for axis, (length, sigma) in enumerate(zip(shape, scales, strict=True)):
        line = np.arange(length, dtype=np.float64) / sigma
        form = [1] * len(shape)
        form[axis] = length
        out[:, len(shape) - 1 - axis] = np.broadcast_to(line.reshape(form), shape).ravel()
    return out


def _check_positions(name: str, scales: npt.NDArray[np.float64], shape: tuple[int, ...]) -> None:
    """Refuse grids too large, and standard deviations too small for them."""
    check_pixels("shape", math.prod(shape))
    check_fits("shape", (*shape, len(shape)))
    for length, sigma in zip(shape, scales, strict=True):
        check_extent(name, sigma, length - 1.0)


def check_extent(name: str, sigma: float, largest: float) -> None:
    """Refuse a standard deviation so small that values up to `largest` cannot be filtered."""
    if not largest <= LARGEST_FEATURE * abs(sigma):
        remedy = f"values up to {largest:g} are then more than {LARGEST_FEATURE:g} standard "
        remedy += "deviations from zero, further than can be filtered; give "
        remedy += f"{largest / LARGEST_FEATURE:.3g} or greater"
        raise ArgumentError(name, sigma, remedy)
