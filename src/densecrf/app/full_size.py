"""The labels of a large image: solved on blocks of its pixels, enlarged, and improved as a whole.

The unaries of strokes are those of the blocks, enlarged, so that noise in single pixels does not
count; strokes and the kernels are of all pixels. Marginals and dual potentials of the blocks'
problem, enlarged, are a good start on all pixels: one iteration or a few lower the energy along
borders and prove a bound. What is stated is the energy of all pixels and a bound on it.
"""

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.app.pictures import block_factor, block_means
from densecrf.deadline import Limits
from densecrf.model.crf import DenseCRF
from densecrf.model.kernels import Bilateral, Spatial
from densecrf.model.resample import resize_window
from densecrf.model.scribbles import scribble_unary
from densecrf.model.unaries import plant
from densecrf.problem.certificate import Potentials
from densecrf.problem.problem import problem_of
from densecrf.problem.rounding import icm
from densecrf.solvers.islands import without_islands
from densecrf.solvers.loop import Step, drive
from densecrf.solvers.lp import lp
from densecrf.solvers.minimisation import packed
from densecrf.solvers.result import Result

__all__ = ["GAP", "side_of_blocks", "solve", "unary_of_strokes"]

GAP = 1e-3  # of images up to `densecrf.app.pictures.WORK_PIXELS`
BLOCKS_GAP = 2e-3  # of the blocks' problem
LARGE_GAP = 1e-2  # of all pixels, unless `ITERATIONS` end it before
ITERATIONS = 4
SWEEPS = 1  # of iterated conditional modes at the end: most of what there is to gain

Floats = npt.NDArray[np.float32]


def side_of_blocks(shape: tuple[int, ...]) -> int:
    """Return the side of the blocks on which an image is solved first; 1: it is not large."""
    return block_factor(shape) if len(shape) == 2 else 1


def unary_of_strokes(
    image: npt.NDArray[Any],
    strokes: npt.NDArray[Any],
    n_labels: int | None = None,
    *,
    blocks: int = 1,
    void: int,
) -> Floats:
    """Return unary energies (labels, *spatial) learnt from strokes, on blocks of a large image.

    Parameters
    ----------
    image, strokes, n_labels, void
        As for `densecrf.model.scribbles.scribble_unary`.
    blocks : int
        Their side, `side_of_blocks`; 1 for none.
    """
    if blocks == 1:
        return scribble_unary(image, strokes, n_labels, void=void)
    labels = [int(label) for label in np.unique(strokes) if label != void]
    planes = [block_means(np.uint8(255) * (strokes == label), blocks) for label in labels]
    reduced = np.full(planes[0].shape, void, strokes.dtype)
    for label, plane in zip(labels, planes, strict=True):
        reduced[plane > 0] = label
    unary = scribble_unary(block_means(image, blocks), reduced, n_labels, void=void)
    unary = _enlarged(unary, blocks, strokes.shape)
    plant(unary, np.where(strokes == void, -1, strokes.astype(np.int64)))
    return unary


def solve(crf: DenseCRF, blocks: int = 1, min_area: int = 0) -> Result:
    """Return the answer of an export, from the energy alone: it can be repeated.

    Parameters
    ----------
    crf : DenseCRF
        The energy of all pixels.
    blocks : int
        Their side, `side_of_blocks`; 1 for none.
    min_area : int
        Islands and holes of fewer pixels go.
    """
    if blocks == 1:
        return without_islands(crf.solve("lp", gap=GAP), min_area)
    found = _of_blocks(crf, blocks).solve("lp", gap=BLOCKS_GAP, keep_dual=True)
    y = _enlarged(found.marginals, blocks, crf.shape).reshape(crf.n_labels, -1)
    dual, potentials = found.dual, None
    if isinstance(dual, Potentials) and dual.cells is not None and dual.labels is None:
        scores = dual.scores if dual.offsets is None else dual.scores + dual.offsets
        levels = np.asarray(dual.cells * scores, np.float32).reshape(
            len(scores), *found.labels.shape
        )
        potentials = _enlarged(levels, blocks, crf.shape).reshape(len(scores), -1)
    problem = problem_of(crf)
    limits = Limits.checked(LARGE_GAP, None, ITERATIONS, None)
    outcome = drive(
        problem,
        lambda: Step(problem.steps.project(y)),
        partial(lp, problem, potentials=potentials),
        limits,
        finish=lambda problem, labels: icm(problem, labels, SWEEPS),
    )
    return without_islands(packed(problem, "lp", outcome, limits), min_area)


def _of_blocks(crf: DenseCRF, side: int) -> DenseCRF:
    """Return the energy of blocks, each as one pixel, divided by the pixels of a block."""
    unary = np.stack([block_means(each, side) for each in crf.unary.reshape(-1, *crf.shape)])
    times = side**2 if crf.normalization == "none" else 1
    kernels: list[Any] = []
    for kernel in crf.kernels:
        if isinstance(kernel, Spatial):
            kernels.append(Spatial(np.divide(kernel.sigma, side), times * kernel.weight))
        else:
            assert isinstance(kernel, Bilateral)
            image = block_means(kernel.image, side)
            sigmas = np.divide(kernel.sigma_xy, side), kernel.sigma_color
            kernels.append(Bilateral(image, *sigmas, times * kernel.weight))
    costs = crf.tree or crf.compatibility
    given = (crf.normalization, crf.filter)
    return DenseCRF.from_checked(unary, kernels, *given, compatibility=costs, blur=crf.blur)


def _enlarged(maps: Floats, side: int, shape: tuple[int, ...]) -> Floats:
    """Return maps (labels, *blocks) at the size of the image, bilinearly."""
    blocks = maps.shape[1:]
    whole = tuple(side * extent for extent in blocks)  # those at the ends may be smaller
    box = tuple(slice(0, extent) for extent in shape)
    resized = resize_window(lambda at: maps[:, at[0], at[1]], blocks, whole, box)
    return np.asarray(resized, np.float32)
