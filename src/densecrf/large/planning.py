"""From what a user gives to a `Job`: axes found, sizes compared, numbers checked."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from densecrf.large.job import Job, Kernel
from densecrf.large.ome import image_of
from densecrf.large.sources import Source, open_source, read
from densecrf.large.tiles import Tiling
from densecrf.large.views import Band, Coarse, Grey, Moved, Valid, holds_data
from densecrf.presets import Model
from densecrf.unaries import COLOR_CHANNELS, KINDS, sums_to_one
from densecrf.validation import (
    ArgumentError,
    check_choice,
    check_integer,
)

__all__ = ["kind_of", "label_count", "plan", "scratch_of", "settings_of"]


def plan(
    image: Any,
    probs: Any,
    *,
    folder: Path,
    tile: Any,
    margin: Any,
    mask: Any,
    model: Model,
    kernels: Sequence[Kernel] | None = None,
    scale_sigmas: bool | float,
    kind: str | None,
    axis: int | None,
    channel_axis: int | None,
    n_labels: int | None,
    void: Any,
    clip: float,
    image_range: tuple[float, float] | None,
    normalization: str,
    method: str,
    inner: int,
    threads: int,
    missing_chunks: str = "error",
) -> Job:
    """Return the run of `densecrf.large.refine`, whose parameters these are."""
    picture, scores, content = _layout(
        open_source("image", image), open_source("probabilities", probs), kind, axis, channel_axis
    )
    grid = picture.shape[:-1]
    found = kind_of(scores, content, kind, grid)
    count = label_count(scores, content, n_labels)
    held = None if mask is None else _mask(mask, grid)
    nodata = getattr(picture, "nodata", None)
    if nodata is not None:
        held = Valid(picture, nodata, held)
    if picture.dtype != np.uint8 and picture.dtype != bool and image_range is None:
        raise ArgumentError(
            "image_range",
            image_range,
            f"an image of {picture.dtype} is not scanned for its range; give the values that mean "
            "black and white, for example (0, 1) or (0, 65535)",
        )
    job = Job(
        folder,
        Tiling.of(grid, _sides("tile", tile, len(grid))),
        picture,
        scores,
        held,
        content,
        found,
        count,
        _kernels(model.sized(grid, scale_sigmas), kernels, len(grid), picture.shape[-1]),
        {"void": void, "confidence": model.confidence, "clip": clip},
        image_range,
        check_choice("normalization", normalization, ("symmetric", "none")),
        check_choice("method", method, ("lp", "mf5")),
        check_integer("inner", inner, at_least=1, at_most=19),
        threads,
        missing_chunks=check_choice("missing_chunks", missing_chunks, ("error", "fill")),
    )
    if margin is not None:
        asked = _sides("margin", margin, len(grid))
        if any(own > given for own, given in zip(job.margin, asked, strict=True)):
            raise ArgumentError(
                "margin",
                margin,
                f"the kernels reach {job.margin} pixels, and with less the sums would not be those "
                "of the whole image; leave it out",
            )
    return job


def _layout(
    image: Source, scores: Source, kind: str | None, axis: int | None, channel_axis: int | None
) -> tuple[Source, Source, str]:
    """Return the image with channels last, the scores with labels first, and what they are."""
    fitting = [
        (picture, known, content)
        for picture in _images(image, channel_axis)
        for known, content in _scores(scores, picture.shape[:-1], kind, axis)
    ]
    if len(fitting) == 1:
        return fitting[0]
    shapes = f"shape {scores.shape} with an image of shape {image.shape}"
    if not fitting:
        remedy = "give (labels, *pixels), (*pixels, labels), or one number per pixel"
        raise ArgumentError("probabilities", ..., f"{shapes} does not fit; {remedy}")
    remedy = "can be read in several ways; name the label axis by axis, the image's by channel_axis"
    raise ArgumentError("probabilities", ..., f"{shapes} {remedy}")


def _images(image: Source, channel_axis: int | None) -> list[Source]:
    axes = tuple(range(len(image.shape)))
    if channel_axis is not None:
        if not -len(axes) <= channel_axis < len(axes):
            raise ArgumentError("channel_axis", channel_axis, f"the image has {len(axes)} axes")
        which = channel_axis % len(axes)
        return [Moved(image, (*axes[:which], *axes[which + 1 :], which))]
    found: list[Source] = [Grey(image)]
    if len(axes) > 2 and image.shape[-1] <= 16:
        found.append(image)
    if len(axes) > 2 and image.shape[0] in COLOR_CHANNELS:
        found.append(Moved(image, (*axes[1:], 0)))
    return found


def _scores(
    scores: Source, grid: tuple[int, ...], kind: str | None, axis: int | None
) -> list[tuple[Source, str]]:
    if scores.shape == (*grid, 1):  # a raster of one band
        scores, axis = Band(scores), None
    axes = tuple(range(len(scores.shape)))
    if scores.shape == grid and axis is None:
        whole = kind == "labels" or (kind is None and scores.dtype.kind in "bui")
        return [(scores, "labels" if whole else "map")]
    named = {0, len(axes) - 1} if axis is None else {axis % len(axes)}
    found: list[tuple[Source, str]] = []
    for which in sorted(named):
        order = (which, *axes[:which], *axes[which + 1 :])
        if tuple(scores.shape[each] for each in order[1:]) == grid and scores.shape[which] > 1:
            found.append((Moved(scores, order), "scores"))
    return found


def kind_of(scores: Source, content: str, kind: str | None, grid: tuple[int, ...]) -> str:
    """Return what the scores are, as named or as a few pixels show."""
    if kind is not None:
        return check_choice("kind", kind, KINDS)
    if content == "labels":
        return "labels"
    sample = tuple(slice(0, min(side, 32)) for side in grid)
    if content == "map":
        return "probabilities"
    window = (slice(0, scores.shape[0]), *sample)
    values = read("probabilities", scores, window)
    known = holds_data(values, getattr(scores, "nodata", None), 0)
    for _, part in scores.absent(window):
        known[part[1:]] = False
    if not known.any():
        remedy = "say what the scores are: their first pixels are missing"
        raise ArgumentError("kind", kind, remedy)
    if sums_to_one(np.nan_to_num(values[:, known], nan=0.0)):
        return "probabilities"
    raise ArgumentError(
        "kind",
        kind,
        "scores that do not add up to 1 over the labels; say whether they are 'logits' (the higher "
        "the likelier), 'energies' (the lower the likelier) or 'probabilities'",
    )


def label_count(scores: Source, content: str, n_labels: int | None) -> int:
    """Return the number of labels, which integer labels do not tell."""
    own = {"scores": scores.shape[0], "map": 2}.get(content)
    if own is None:
        if n_labels is None:
            raise ArgumentError("n_labels", n_labels, "give the number of labels")
        return check_integer("n_labels", n_labels, at_least=2, at_most=65534)
    if n_labels is not None and n_labels != own:
        raise ArgumentError("n_labels", n_labels, f"the scores are of {own} labels")
    return own


def _mask(mask: Any, grid: tuple[int, ...]) -> Source:
    held = open_source("mask", mask)
    if len(held.shape) == len(grid) + 1 and held.shape[-1] == 1:
        held = Band(held)
    if held.shape == grid:
        return held
    if Coarse.fits(held.shape, grid):
        return Coarse(held, grid)
    remedy = (
        f"shape {held.shape} for a grid of {grid} pixels; give one of the same size, or reduced"
    )
    raise ArgumentError("mask", ..., f"{remedy} by a factor of 2 or more")


def _kernels(
    model: Model, kernels: Sequence[Kernel] | None, axes: int, channels: int
) -> tuple[Kernel, ...]:
    """Return the kernels that count: those that were given, or the model's two."""
    if kernels is None:
        kernels = (
            Kernel(model.weight, model.sigma),
            Kernel(model.bilateral_weight, model.sigma_xy, model.sigma_color),
        )
    whole = [kernel.checked(axes, channels) for kernel in kernels]
    return tuple(kernel for kernel in whole if kernel.weight > 0)


def _sides(name: str, given: Any, axes: int) -> tuple[int, ...]:
    sides = tuple(given) if isinstance(given, (tuple, list)) else (given,) * axes
    if len(sides) != axes:
        raise ArgumentError(name, given, f"give one number, or one for each of {axes} axes")
    return tuple(check_integer(name, side, at_least=2 if name == "tile" else 0) for side in sides)


def settings_of(job: Job, model: Model, gap: float) -> dict[str, Any]:
    """Return all that the files of a run depend on."""
    from densecrf import __version__

    sources = {"image": job.image, "probabilities": job.scores, "mask": job.mask}
    inputs = {name: None if each is None else each.identity for name, each in sources.items()}
    return {
        "version": __version__,
        **inputs,
        "kind": [job.content, job.kind, job.n_labels],
        "tile": [job.tiling.shape, job.tiling.block],
        "model": [list(job.kernels), model.label_costs, model.tolerated, job.normalization],
        "unaries": {key: _plain(value) for key, value in job.settings.items()},
        "image_range": job.image_range,
        "method": [job.method, job.inner, gap],
    }


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def scratch_of(out: Path | None, scratch: Any) -> Path:
    """Return the folder of the working files."""
    if scratch is not None:
        return Path(os.fspath(scratch))
    if out is None:
        from tempfile import mkdtemp

        return Path(mkdtemp(prefix="densecrf-"))
    image = image_of(out)
    if image is not None:  # not among the files of a store
        return image.with_name(f"{image.name}.{out.name}.parts")
    return out.with_name(out.name + ".parts")
