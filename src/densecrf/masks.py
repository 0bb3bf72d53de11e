r"""Refine many masks of one image, one by one or together, each with a certificate.

A mask is a problem of two labels: for each pixel the log-odds that it belongs to the mask
(`densecrf.model.masks`), and the image's pairwise terms, which all masks share. Only pixels near a
border are solved for; the others send their messages once. Bounds and energies are those of the
whole image (`densecrf.problem.remainder`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.extras import check_installed
from densecrf.model.crf import DenseCRF
from densecrf.model.kernels import color_range, without_alpha
from densecrf.model.masks import (
    BORDER,
    Evidence,
    GivenMasks,
    evidence_of,
    margin_of,
    read_masks,
)
from densecrf.model.parameters import Parameters
from densecrf.model.presets import get_parameters
from densecrf.model.unaries import FORBIDDEN, negative_log_softmax
from densecrf.native import core
from densecrf.parallel import run
from densecrf.problem.remainder import Remainder
from densecrf.solvers.changes import Changes, compare
from densecrf.solvers.loop import Limits
from densecrf.solvers.parts import iterate, reduced
from densecrf.solvers.registry import LP_GAP
from densecrf.solvers.result import relative_gap
from densecrf.validation import (
    ArgumentError,
    FloatArray,
    IntArray,
    as_image,
    check_fraction,
    check_integer,
    check_positive,
    check_threads,
    mention,
    warn,
    with_near_names,
)

__all__ = ["MASKS", "RefinedMask", "RefinedMasks", "refine_masks"]

#: The model of masks: kernels of a short reach.
MASKS = Parameters(1, 2, 20, 4.5, 10, confidence=None, about="ours, for masks: near their borders")

REACH = 3.0  # standard deviations of the kernels around a mask that is held with a probability
LEAK = 0.1  # share of the asked gap that pairs with the outside of a window may cost
MOST_STEPS = 1000  # iterations of a stage
STAGES = (5e-5, 2e-5, 1e-5, 5e-6, 2.5e-6)  # gaps at which labels are proven, before the asked one
KEPT = 0.5  # of a mask's pixels, below which it is warned about; grown by the inverse, too

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RefinedMask:
    """One refined mask with its certificate.

    Attributes
    ----------
    mask : ndarray of bool, (H, W)
        The refined mask.
    energy : float
        Its energy.
    lower_bound : float
        No mask has an energy below this.
    iterations : int
        Iterations made, in filterings of all pixels that were solved for.
    changes : Changes
        What changed; label 1 is the mask.
    warning : str
        Why the mask may be wrong; empty where nothing is suspicious.
    """

    mask: Bools
    energy: float
    lower_bound: float
    iterations: int
    changes: Changes
    warning: str = ""

    @property
    def gap(self) -> float:
        """(energy - lower_bound) / max(1, abs(energy)): how far from optimal, at most."""
        return relative_gap(self.energy, self.lower_bound) or 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return its numbers, ready for JSON."""
        return {
            "energy": self.energy,
            "lower_bound": self.lower_bound,
            "gap": self.gap,
            "iterations": self.iterations,
            "changed": self.changes.changed,
            "warning": self.warning,
        }


@dataclass(frozen=True, eq=False)
class RefinedMasks(Sequence[RefinedMask]):
    """What `refine_masks` returns: a sequence of `RefinedMask`.

    Attributes
    ----------
    masks : object
        The refined masks in the format of the input.
    results : tuple of RefinedMask
        Each mask by itself.
    """

    masks: Any
    results: tuple[RefinedMask, ...]

    def __len__(self) -> int:
        """Return how many masks there are."""
        return len(self.results)

    def __getitem__(self, index: Any) -> Any:
        """Return one of the masks with its numbers."""
        return self.results[index]

    @property
    def arrays(self) -> Bools:
        """All masks, (n, H, W)."""
        return np.stack([each.mask for each in self.results])

    @property
    def gap(self) -> list[float]:
        """The gap of each mask: its largest possible distance from the optimum."""
        return [each.gap for each in self.results]

    def __repr__(self) -> str:
        """Return one line."""
        return f"<RefinedMasks: {len(self)}, largest gap {max(self.gap, default=0.0):.3g}>"


@with_near_names
def refine_masks(
    image: Any,
    masks: Any,
    *,
    kind: str | None = None,
    scores: Any = None,
    exclusive: bool = False,
    model: str | Parameters = MASKS,
    strength: float = 1.0,
    border: float | None = BORDER,
    confidence: float | None = None,
    channel_axis: int | None = None,
    image_range: tuple[float, float] | None = None,
    gap: float | None = None,
    time_limit: float | None = None,
    max_iterations: int | None = None,
    threads: int | None = None,
    device: Any = None,
) -> RefinedMasks:
    """Refine masks of one image, such as those of a detector or a promptable segmenter.

    Parameters
    ----------
    image : array_like, (H, W) or (H, W, channels)
        The image, colours from 0 to 255, or from 0 to 1 where it holds floating-point numbers.
    masks : array_like or sequence
        One mask (H, W) or several (n, H, W): true or false, 0 and 1 or 255, probabilities, logits;
        COCO's annotations or segmentations (run lengths, polygons), one for each mask; or boxes
        (n, 4), with `kind`. Masks may overlap.
    kind : {"masks", "probabilities", "logits", "xyxy", "xywh", "coco"}, optional
        What `masks` holds, where its values do not tell. Boxes are two corners (``"xyxy"``), or a
        corner and the size (``"xywh"``).
    scores : array_like, (n,), optional
        A factor from 0 to 1 of each mask's evidence. By default the ``score`` of COCO's results,
        or 1.
    exclusive : bool
        Whether a pixel belongs to one mask at most: all masks are solved as labels of one problem.
        By default each is a problem of its own.
    model : str, path-like or Parameters
        The kernels: ours for masks by default, a preset's name, a file, or the object.
    strength : float
        Factor of the pairwise weights.
    border : float
        How many pixels the border of a mask may be wrong by, inside at most half of its thickness;
        pixels further away keep their label. None: any pixel may change, as with hard masks for
        which a confidence is given, here or by the model.
    confidence : float, optional
        Probability that a pixel of a hard mask is right, the same for all pixels. CutLER's is 0.73,
        with which the empty mask is often optimal.
    channel_axis : int, optional
        The channel axis of `image`, the last by default.
    image_range : (float, float), optional
        The values of `image` that mean black and white.
    gap : float, optional
        Relative gap at which a mask is done, 1e-3 by default.
    time_limit : float, optional
        Seconds for all masks, after which the best so far are returned.
    max_iterations : int, optional
        Most iterations for each mask; those on the pixels that are left when others are proven
        count by their share.
    threads : int, optional
        Most threads: masks are solved at the same time. The result does not depend on their number.
    device : str or torch.device, optional
        Where to solve, for example ``"cuda"``, all masks at once; needs PyTorch.

    Returns
    -------
    RefinedMasks
        With ``masks`` in the format of the input (boxes are those of the refined masks), and for
        each mask its gap, changes and warning. Probabilities become 0 and 1, logits change their
        sign where the mask changes. A mask with holes comes back as run lengths where polygons
        came in.

    Examples
    --------
    >>> image = np.zeros((40, 60, 3), np.uint8)
    >>> image[10:30, 20:40] = 200
    >>> mask = np.zeros((40, 60), bool)
    >>> mask[7:27, 18:38] = True  # a square, displaced
    >>> found = refine_masks(image, [mask])
    >>> bool((found.masks[0] == (image[..., 0] > 0)).all()), found.gap[0] < 1e-3
    (True, True)
    """
    parameters = get_parameters(model)
    if confidence is None:
        confidence = parameters.confidence
    else:
        check_fraction("confidence", confidence)
    if border is not None:
        check_positive("border", border)
    limits = Limits.checked(LP_GAP if gap is None else gap, time_limit, max_iterations, None)
    workers = check_threads(threads)
    pixels = _image(image, channel_axis)
    given = read_masks(masks, pixels.shape[:2], kind, scores)
    pixels, largest = color_range(pixels, image_range)
    shape = pixels.shape[:2]
    crf = (
        parameters.sized(shape)
        .scaled(strength)
        .crf(np.zeros((2, *shape), np.float32), pixels, largest=largest)
    )
    reach = REACH * max(float(np.max(parameters.sigma_xy)), float(np.max(parameters.sigma)))
    evidence = partial(evidence_of, given, border, confidence)
    work = _Work(crf, shape, reach, limits)
    if device is None and given.count:
        work.prepare()
    several = given.count > 1
    if device is not None:
        check_installed(f"device={device!r}", "torch")
    if exclusive:
        results = work.together([evidence(i) for i in range(given.count)], workers, device)
    elif device is not None:
        results = work.on_device(given, border, confidence, device)
    else:
        tasks = run(
            lambda i: work.alone(evidence(i), 1 if several else workers),
            ((i,) for i in range(given.count)),
            workers=min(workers or core().available_threads(), given.count) if several else None,
            ordered=True,
            name="refine_masks",
        )
        results = [each.result() for each in tasks]
    if doubted := [i for i, each in enumerate(results) if each.warning]:
        first = f"mask {doubted[0]} {results[doubted[0]].warning}"
        more = f"{len(doubted)} of {len(results)} are to be looked at: " if several else ""
        warn("masks", more + first)
    return RefinedMasks(given.restored([each.mask for each in results]), tuple(results))


def _image(image: Any, channel_axis: int | None) -> npt.NDArray[Any]:
    """Return the image, (H, W) or (H, W, channels)."""
    array = as_image("image", image)
    if array.ndim == 3 and channel_axis is None and array.shape[2] > 4 >= array.shape[0]:
        remedy = f"shape {array.shape} has its channels first; say {mention('channel_axis', 0)}"
        raise ArgumentError("image", ..., remedy)
    if array.ndim == 3 and channel_axis is not None:
        check_integer("channel_axis", channel_axis, at_least=-3, at_most=2)
        array = np.moveaxis(array, channel_axis, -1)
    if array.ndim not in (2, 3) or array.size == 0:
        remedy = f"shape {array.shape}; give (height, width) or (height, width, channels)"
        raise ArgumentError("image", ..., remedy)
    return array if channel_axis is not None else without_alpha(array, array.shape[:2])


class _Work:
    """The problems of an image's masks, on the one matrix K that they share."""

    def __init__(self, crf: DenseCRF, shape: tuple[int, int], reach: float, limits: Limits) -> None:
        self._crf, self._shape, self._reach, self._limits = crf, shape, reach, limits

    def prepare(self) -> None:
        """Build what threads share: the matrix K, its row sums and its diagonal."""
        self._crf.pairwise.mass_double  # noqa: B018
        self._crf.pairwise.diagonal_double  # noqa: B018

    def alone(self, evidence: Evidence, threads: int) -> RefinedMask:
        """Solve one mask's problem of two labels."""
        return self._solved([evidence], threads)[0]

    def together(self, evidence: list[Evidence], threads: int, device: Any) -> list[RefinedMask]:
        """Solve all masks as labels of one problem, on a device the image's."""
        if not evidence:
            return []
        if device is None:
            return self._solved(evidence, threads)
        from densecrf.torch.problem import minimise_on

        every = slice(0, self._shape[0]), slice(0, self._shape[1])
        unary = self._unary(evidence, every)[0]
        model = (self._crf.kernels, self._crf.normalization)
        crf = DenseCRF.from_checked(unary.reshape(-1, *self._shape), *model)
        _, found = minimise_on(crf, device, "lp", self._limits)
        if found.interrupted:
            raise KeyboardInterrupt
        bound = -np.inf if found.lower_bound is None else found.lower_bound
        labels = np.asarray(found.labels.cpu(), np.int64)
        return self._packed(evidence, every, found.energy, bound, found.iterations, labels, unary)

    def on_device(
        self, given: GivenMasks, border: float | None, confidence: float | None, device: Any
    ) -> list[RefinedMask]:
        """Solve each mask by itself on a device, all in one run."""
        if not given.count:
            return []
        from densecrf.torch.masks import Given, minimise_masks

        every = range(given.count)
        if given.boxes is not None:  # few: their evidence is made here
            whole = slice(0, self._shape[0]), slice(0, self._shape[1])
            each = (evidence_of(given, border, confidence, i) for i in every)
            masks = Given(np.stack([_within(one, whole) for one in each]))
        else:
            near = border if given.odds is not None or confidence is None else None
            one = given.odds or given.hard
            assert one is not None
            planes = np.stack([one(i) for i in every])
            masks = Given(planes, given.scores, near, margin_of(confidence))
        found = minimise_masks(self._crf, masks, device, self._limits)
        return [RefinedMask(*each[:4], each.changes, _suspicion(each.changes)) for each in found]

    def _solved(self, evidence: list[Evidence], threads: int) -> list[RefinedMask]:
        box = _union([each.box for each in evidence])
        held = all(np.ndim(each.outside) == 0 for each in evidence)
        reach = 0 if held else int(np.ceil(self._reach))
        while True:
            window = _grown(box, reach, self._shape)
            found = self._in_window(evidence, window, held, threads)
            whole = window == _grown(box, max(self._shape), self._shape)
            leak, energy = found[0], found[1]
            small = LEAK * (self._limits.gap or 0.0) * max(1.0, abs(energy))
            if held or whole or leak <= small:
                return self._packed(evidence, window, *found[1:])
            reach *= 2

    def _in_window(
        self, evidence: list[Evidence], window: tuple[slice, slice], held: bool, threads: int
    ) -> tuple[float, float, float, int, IntArray, FloatArray]:
        """Return leak, energy, bound, iterations, labels and unaries of a window."""
        unary, outside = self._unary(evidence, window)
        pixels = np.arange(self._shape[0] * self._shape[1]).reshape(self._shape)[window].ravel()
        if not pixels.size:
            return 0.0, outside, outside, 0, np.zeros(0, np.int64), unary
        some = np.arange(pixels.size)
        if held:  # pixels of which label 0 is held are as good as outside
            some = np.flatnonzero(unary[1:].min(0) - unary[0] < FORBIDDEN / 2)
        rest = partial(
            Remainder,
            self._crf.pairwise,
            np.ascontiguousarray(unary[:, some]),
            pixels[some],
            settled_outside=held,
            constant=outside,
            threads=threads,
        )
        numbers, found = self._stages(rest, threads)
        labels = np.zeros(pixels.size, np.int64)
        labels[some] = found
        return (*numbers, labels, unary)

    def _stages(
        self, rest_of: Callable[..., Remainder], threads: int
    ) -> tuple[tuple[float, float, float, int], IntArray]:
        """Solve to coarse gaps first: each proves labels, and the next is left with fewer pixels.

        Returns leak, energy, bound and iterations; and labels.
        """
        asked = self._limits.gap or 0.0
        best, bound, iterations, first = (np.inf, 0.0, np.zeros(0, np.int64)), -np.inf, 0.0, 0
        known = before = None
        for stage in [*(gap for gap in STAGES if gap > asked), asked]:
            rest = rest_of(known=known)
            first = first or rest.left.size
            share = rest.left.size / max(1, first)  # of the pixels that an iteration filters
            labels, energy, lower = np.zeros(0, np.int64), 0.0, 0.0
            possible: Any = None
            if rest.left.size:
                limits = self._limits_of(stage, rest, best[0], iterations, share)
                problem = rest.problem(threads)
                outcome = iterate(problem, limits, before)
                if outcome.interrupted:
                    raise KeyboardInterrupt
                labels, energy, possible = outcome.labels, outcome.energy, outcome.possible
                lower = float(rest.unary.min(0).sum())  # without the pairs
                lower = max(lower, outcome.lower_bound or lower)
                iterations += share * outcome.iterations
            whole = rest.completed(labels)
            energy = rest.whole_energy(labels, energy)
            if energy < best[0]:
                best = energy, rest.leaking(whole), whole
            bound = max(bound, rest.whole_bound(lower))
            if best[0] - bound <= asked * max(1.0, abs(best[0])) or possible is None:
                break
            known = rest.labels.copy()
            proven = rest.left[possible == 1]
            known[proven] = whole[proven]
            before = reduced(problem, outcome, possible > 1)
        energy, leak, whole = best
        return (leak, energy, min(bound, energy), int(np.ceil(iterations))), whole

    def _limits_of(
        self, stage: float, rest: Remainder, energy: float, made: float, share: float
    ) -> Limits:
        """Return when a stage ends: at its gap, which is relative to the image's energy."""
        gap, most = stage, self._limits.max_iterations
        if np.isfinite(energy):
            own = max(1.0, abs(energy - rest.constant))
            gap = min(0.5, stage * max(1.0, abs(energy)) / own)
        if most is not None:
            most = int(min(MOST_STEPS, max(0.0, most - made) / share))
        return replace(self._limits, gap=gap, max_iterations=most)

    def _unary(
        self, evidence: list[Evidence], window: tuple[slice, slice]
    ) -> tuple[FloatArray, float]:
        """Return the window's unary energies, and the sum of the least outside."""
        odds = np.stack([_within(each, window) for each in evidence])
        scores = np.concatenate([np.zeros((1, *odds.shape[1:]), np.float32), odds])
        unary = negative_log_softmax(np.clip(scores, -FORBIDDEN, FORBIDDEN))
        if np.ndim(evidence[0].outside) == 0:
            return unary.reshape(len(unary), -1), 0.0
        every = np.stack([each.outside for each in evidence])
        least = np.log1p(np.exp(every.astype(np.float64)).sum(0))  # of label 0
        return unary.reshape(len(unary), -1), float(least.sum() - least[window].sum())

    def _packed(
        self,
        evidence: list[Evidence],
        window: tuple[slice, slice],
        energy: float,
        bound: float,
        iterations: int,
        labels: IntArray,
        unary: FloatArray,
    ) -> list[RefinedMask]:
        """Return each mask with its numbers."""
        results = []
        pixels = self._shape[0] * self._shape[1]
        for i in range(len(evidence)):
            mask = np.zeros(self._shape, bool)
            mask[window] = (labels == i + 1).reshape(mask[window].shape)
            own = np.stack([np.delete(unary, i + 1, 0).min(0), unary[i + 1]])
            changes = _changes(own, labels == i + 1, pixels)
            results.append(
                RefinedMask(mask, energy, bound, iterations, changes, _suspicion(changes))
            )
        return results


def _changes(unary: FloatArray, mask: Bools, pixels: int) -> Changes:
    """Return what changed among all pixels of the image; outside the window is no mask."""
    margin = unary[0] - unary[1]
    free = np.abs(margin) < FORBIDDEN / 2
    held = int((margin >= FORBIDDEN / 2).sum())
    certain = (pixels - held - int(free.sum()), held)
    return compare(unary[:, free], mask[free].astype(np.int64), certain=certain)


def _suspicion(changes: Changes) -> str:
    """Return how a mask departs suspiciously from its input, and what to do."""
    before, after = changes.area_before[1], changes.area_after[1]
    if before and not KEPT * before <= after <= before / KEPT:
        return (
            f"has {after:,} pixels of {before:,}: its border follows other edges, or the pairwise "
            f"weights dominate; lower {mention('strength')} or {mention('border')}, and give no "
            f"{mention('confidence')}"
        )
    return ""


def _union(boxes: list[tuple[slice, slice]]) -> tuple[slice, slice]:
    """Return the box around some boxes, of which empty ones do not count."""
    full = [box for box in boxes if box[0].stop > box[0].start]
    if not full:
        return slice(0, 0), slice(0, 0)
    rows, columns = ([box[axis] for box in full] for axis in (0, 1))
    return (
        slice(min(s.start for s in rows), max(s.stop for s in rows)),
        slice(min(s.start for s in columns), max(s.stop for s in columns)),
    )


def _grown(box: tuple[slice, slice], more: int, shape: tuple[int, int]) -> tuple[slice, slice]:
    """Return a box some pixels larger, within the image; an empty one stays empty."""
    if box[0].stop == box[0].start:
        return box
    rows, columns = (
        slice(max(0, s.start - more), min(length, s.stop + more))
        for s, length in zip(box, shape, strict=True)
    )
    return rows, columns


def _within(evidence: Evidence, window: tuple[slice, slice]) -> FloatArray:
    """Return the log-odds in a window."""
    if np.ndim(evidence.outside):
        return np.asarray(evidence.outside[window], np.float32)
    rows, columns = window
    out = np.full((rows.stop - rows.start, columns.stop - columns.start), -np.inf, np.float32)
    own = evidence.box
    out[
        own[0].start - rows.start : own[0].stop - rows.start,
        own[1].start - columns.start : own[1].stop - columns.start,
    ] = evidence.odds
    return out
