"""One call from a clip and a network's output of its frames to labels that do not flicker."""

import time
from dataclasses import replace
from functools import partial
from typing import Any

from densecrf.io.errors import FileFormatError
from densecrf.large.frames import open_clip
from densecrf.large.motion import open_flow
from densecrf.large.outputs import checked_output
from densecrf.large.planning import declared, scratch_of
from densecrf.large.refinement import solved, write_labels
from densecrf.large.result import LargeResult
from densecrf.large.rounds import Progress
from densecrf.model.specification import Specification
from densecrf.validation import ArgumentError, check_integer, check_threads, with_keywords_of

__all__ = ["SIGMA_T", "WINDOW", "refine_video"]

SIGMA_T = 6.0  # frames: of fewer the lattice has more vertices, and flicker is hardly less
WINDOW = 32  # frames


@with_keywords_of(Specification)
def refine_video(
    frames: Any,
    scores: Any,
    *,
    sigma_t: float = SIGMA_T,
    flow: Any = None,
    out: Any = None,
    window: int = WINDOW,
    gap: float | None = None,
    method: str = "lp",
    max_iterations: int | None = None,
    threads: int | None = None,
    scratch: Any = None,
    progress: Progress | None = None,
    **keywords: Any,
) -> LargeResult:
    """Sharpen a network's output along the edges of a clip's frames, and steady it in time.

    Kernels are over time, position and colour: a pixel's label follows those of similar pixels in
    the frames before and after. The energy is one for the whole clip, and so is the bound. A clip
    that does not fit into memory is solved in windows that overlap. An interrupted call with `out`,
    made again, goes on where it stopped.

    Parameters
    ----------
    frames : path-like, sequence of path-like, or array
        The frames: an array (t, y, x) or (t, y, x, channels), a file of such an array, a folder of
        images, in the order of their numbers, or a video file (PyAV reads it; extra ``video``).
    scores : path-like, sequence of path-like, or array
        What is known of each frame, as `densecrf.refine` reads it for an image: an array with time
        first, or a folder with a file for each frame, named as the frame is. Scores of a lower
        resolution are resized to the frames.
    sigma_t : float
        Standard deviation of time in both kernels, in frames.
    flow : path-like or array, optional
        How pixels move, (t, y, x, 2): the displacement (x, y), in pixels, of each pixel of a frame
        to the next one. Positions follow it, so that kernels connect what moved.
    out : path-like, optional
        Where the labels (t, y, x) go: ``.npy`` or ``.zarr``; as for `densecrf.large.refine`.
    window : int
        Least length of a window, in frames, where the clip is cut. Memory is that of a window with
        its margin of 4.3 `sigma_t` on either side; windows are longer where that fits into a GiB.
    gap, max_iterations, threads, scratch, progress
        As for `densecrf.large.refine`.
    model, strength, sigma, weight, sigma_xy, sigma_color, bilateral_weight, scale_sigmas
        As for `densecrf.refine`, for a frame; the default model is that of the resolution of the
        scores of five frames, and its bilateral kernel reaches 5 grains instead of 8.
        Three numbers for `sigma` or `sigma_xy` are those of (t, y, x).
    kind, n_labels, void, confidence, clip, image_range
        As for `densecrf.refine`.
    axis, channel_axis : int, optional
        As for `densecrf.refine`: the axis of labels in the scores of *one* frame, and that of
        channels in one frame.
    method : {"lp", "mf5"}
        The certified linear program, or five iterations of mean field.

    Returns
    -------
    LargeResult
        With ``labels`` (t, y, x), ``energy``, ``lower_bound`` and ``gap`` of the whole clip.

    Examples
    --------
    A label that flickers in one of six frames:

    >>> import numpy as np
    >>> frames = np.zeros((6, 8, 12, 3), np.uint8)
    >>> frames[:, :, 6:] = 200
    >>> scores = np.where(frames[..., :2] < 100, (0.9, 0.1), (0.1, 0.9))
    >>> scores[3, 2:6, 8:11] = 0.7, 0.3
    >>> result = refine_video(frames, scores, sigma_xy=2, bilateral_weight=5)
    >>> bool((result.labels == (frames[..., 0] > 100)).all()), result.gap < 0.01
    (True, True)
    """
    started, specification = time.perf_counter(), Specification(**keywords)
    check_integer("window", window, at_least=2)
    path = checked_output(out, frames, scores, flow)
    if path is not None and path.suffix.lower() not in (".npy", ".zarr"):
        raise ArgumentError(
            "out", str(out), "labels of a clip go to .npy or .zarr; give such a name"
        )
    try:
        inputs = open_clip(frames, scores, specification)
        grid = inputs.image.shape[:-1]
        job, parameters = declared(
            inputs,
            specification,
            sigma_t=sigma_t,
            folder=scratch_of(path, scratch),
            tile=(window, *(max(2, side) for side in grid[1:])),
            method=method,
            threads=check_threads(threads),
        )
        if flow is not None:
            job = replace(job, flow=open_flow(flow, grid))
        result = solved(
            job,
            parameters,
            partial(write_labels, path, None),
            gap=gap,
            max_iterations=max_iterations,
            progress=progress,
        )
    except FileFormatError:
        raise
    except ArgumentError as error:  # of what images have
        raise error.renamed(tile="window", image="frames", probabilities="scores") from error
    result.seconds = time.perf_counter() - started
    return result
