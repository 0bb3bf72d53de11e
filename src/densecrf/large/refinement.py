"""One call from an image larger than memory and its scores to labels."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from densecrf.large.energy import Kernel, TiledEnergy
from densecrf.large.outputs import checked_output, open_output, write_output
from densecrf.large.planning import check_memory, plan, scratch_of, settings_of
from densecrf.large.result import LargeResult
from densecrf.large.rounds import Progress, TiledRun
from densecrf.large.store import DamagedFileError
from densecrf.model.parameters import Parameters
from densecrf.model.specification import Specification
from densecrf.solvers.registry import LP_GAP
from densecrf.validation import (
    ArgumentError,
    check_gap,
    check_integer,
    check_threads,
    physical_memory,
    warn,
    with_keywords_of,
)

__all__ = ["refine", "solved", "threads_of", "write_labels"]


@with_keywords_of(Specification)
def refine(
    image: Any,
    probs: Any,
    *,
    out: Any = None,
    tile: Any = 2048,
    gap: float | None = None,
    mask: Any = None,
    kernels: Sequence[Kernel] | None = None,
    normalization: str | None = None,
    missing_chunks: str = "error",
    method: str = "lp",
    max_iterations: int | None = None,
    inner: int = 8,
    client: Any = None,
    threads: int | None = None,
    scratch: Any = None,
    progress: Progress | None = None,
    **keywords: Any,
) -> LargeResult:
    """Refine a network's output along the edges of an image larger than memory.

    Energy and bound are those of `densecrf.refine` for the whole image. Repeat an interrupted call
    to continue it.

    Parameters
    ----------
    image : path-like or array
        The image or volume: ``.npy``, ``.zarr`` (OME-Zarr: its full resolution), GeoTIFF and other
        formats of rasterio, ``.nii``, ``file.h5:dataset``, or anything with shape, dtype and
        slices: np.memmap, Zarr, Dask and xarray arrays.
    probs : path-like or array
        Scores of the pixels, in the same formats and of the image's size: numbers with the label
        axis first or last, one integer label per pixel, or one foreground probability per pixel.
    out : path-like, optional
        The output: ``.npy``, ``.zarr``, ``IMAGE.zarr/labels/NAME`` of an OME-Zarr image, or
        ``.tif`` with the image's georeference and overviews. It appears when it is complete; until
        then, working files are in the folder ``OUT.parts``. Without it, labels are returned in
        memory.
    tile : int or sequence of int
        Minimum sides of a tile in pixels; memory is proportional to a tile with its margin, which
        is as wide as the kernels reach (4 standard deviations). Tiles are larger if that costs
        less. An image that needs less than a GiB, or is hardly larger than a tile with its margin,
        is not cut, but solved by `densecrf.refine`.
    gap : float, optional
        Relative gap at which to stop; that of `densecrf.solve` by default.
    mask : path-like or array, optional
        The pixels of the model. The others do not enter the energy and are labelled 255 (65535
        with 255 labels or more); tiles without any are skipped. The mask may be reduced by a factor
        of 2 or more. Pixels with a raster's nodata value are outside.
    model, strength, sigma, weight, sigma_xy, sigma_color, bilateral_weight, scale_sigmas
        As for `densecrf.refine`. If standard deviations follow the size of the image, as the
        default model's do, the margin is as wide as the image, which is then not cut: for an image
        larger than memory give ``scale_sigmas=False``, or numbers in pixels.
    kernels : sequence of Kernel, optional
        Own kernels instead of the model's two.
    normalization : {"symmetric", "none"}, optional
        As for `densecrf.DenseCRF`; the model's by default.
    kind, axis, channel_axis, n_labels, void, confidence, clip, image_range
        As for `densecrf.refine`.
    missing_chunks : {"error", "fill"}
        What to do if image or scores lack a chunk (of Zarr, HDF5, or a sparse GeoTIFF) with pixels
        of the model: raise an error, or read the fill value. Missing chunks of a mask always have
        its fill value.
    method : {"lp", "mf5"}
        The certified linear program, or five iterations of mean field.
    max_iterations : int, optional
        Maximum number of iterations per tile; 500 by default.
    inner : int
        Maximum number of iterations of a tile between updates of its neighbours, 1 to 19.
    client : dask.distributed.Client, optional
        A client whose workers run the tiles; by default this process runs them one by one, each
        with all threads. With a client, inputs must be paths or Zarr, Dask or xarray arrays, and
        inputs, `out` and `scratch` must be on a file system that all workers share.
    threads : int, optional
        Threads of the compiled core for each tile; all by default, with a client 1.
    scratch : path-like, optional
        The folder of the working files.
    progress : callable, optional
        Called with the name of a stage, its finished tiles and all its tiles.

    Returns
    -------
    LargeResult
        Its labels are read from `out` when they are sliced.

    Examples
    --------
    >>> import numpy as np
    >>> image = np.zeros((8, 12, 3), np.uint8)
    >>> image[:, 6:] = 200
    >>> p = np.where(image[..., :2] < 100, (0.9, 0.1), (0.1, 0.9))
    >>> result = refine(image, p, tile=8, sigma_xy=2, bilateral_weight=5)
    >>> result.labels[0], result.gap < 0.01
    (array([0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1], dtype=uint8), True)
    """
    started, specification = time.perf_counter(), Specification(**keywords)
    path = checked_output(out, image, probs, mask)
    job, parameters = plan(
        image,
        probs,
        specification,
        folder=scratch_of(path, scratch),
        tile=tile,
        mask=mask,
        kernels=kernels,
        missing_chunks=missing_chunks,
        normalization=normalization,
        method=method,
        inner=inner,
        threads=threads_of(threads, client),
    )
    # Options that `densecrf.refine` lacks.
    own = job.mask is not None or kernels is not None
    own = own or job.normalization != parameters.normalization
    result = solved(
        job,
        parameters,
        partial(write_labels, path, image),
        gap=gap,
        max_iterations=max_iterations,
        specification=None if own else specification,
        client=client,
        progress=progress,
    )
    result.seconds = time.perf_counter() - started
    return result


def threads_of(threads: int | None, client: Any) -> int:
    """Return the threads of a task: all by default, with a client 1."""
    return check_threads(1 if client is not None and threads is None else threads)


def solved(
    job: TiledEnergy,
    parameters: Parameters,
    write: Callable[[TiledRun, LargeResult], None],
    *,
    gap: float | None,
    max_iterations: int | None,
    specification: Specification | None = None,
    client: Any = None,
    progress: Progress | None = None,
) -> LargeResult:
    """Start or continue a run, and write the labels.

    Parameters
    ----------
    job, parameters
        As by `plan`.
    write : callable
        Writes the labels of a run, and adds them to its result.
    gap, max_iterations, client, progress
        As for `refine`.
    specification : Specification, optional
        The arguments of `densecrf.refine`, if one tile holds the image.
    """
    wanted = LP_GAP if gap is None else check_gap(gap)
    if max_iterations is not None:
        check_integer("max_iterations", max_iterations, at_least=1)
    check_machines(job, client)
    store, asked = job.store, (parameters, wanted, max_iterations, specification)
    with store.locked():
        store.begin(settings_of(job, parameters, wanted))
        try:
            run = TiledRun(job.ready(), client, progress)
            result = run.solve(*asked)
        except DamagedFileError as error:
            warn("out", f"{error}; the run starts again")
            store.clear()
            run = TiledRun(job.ready(), client, progress)
            result = run.solve(*asked)
        write(run, result)
        store.remove()
    return result


def check_machines(job: TiledEnergy, client: Any) -> None:
    """Refuse inputs that workers cannot open, and tiles that exceed memory."""
    if client is None:
        check_memory(job, physical_memory(), "this machine has")
        return
    for name, source in job.read_by_workers().items():
        if source is not None and not source.portable:
            remedy = "an array in memory cannot be read by workers; give a path, or a Zarr, Dask or"
            raise ArgumentError(name, ..., f"{remedy} xarray array")
    workers = client.scheduler_info()["workers"].values()
    limits = [each["memory_limit"] / each["nthreads"] for each in workers]
    check_memory(job, max(limits, default=None), "workers have for each thread")


def write_labels(path: Path | None, image: Any, run: TiledRun, result: LargeResult) -> None:
    """Write the labels of a run with the georeference of the image, or keep them in memory."""
    tiling = run.job.tiling
    if path is None:
        whole = tuple(slice(0, side) for side in tiling.shape)
        result.labels = np.empty(tiling.shape, run.dtype)
        for box in tiling.blocks(whole):
            result.labels[box] = run.block(box)
        return
    like = str(image) if isinstance(image, (str, Path)) else ""
    raster = like.lower().endswith((".tif", ".tiff", ".vrt"))
    write_output(path, tiling, run.block, run.dtype, like if raster else None)
    result.labels = open_output(path)
