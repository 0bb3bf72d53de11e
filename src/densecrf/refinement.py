"""One call from an image and a network's output, or an annotation, to a labelling."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf.extras import check_installed
from densecrf.model.crf import DenseCRF
from densecrf.model.parameters import Parameters
from densecrf.model.reading import Kind
from densecrf.model.resolution import derived
from densecrf.model.specification import KEYWORDS, Specification
from densecrf.parallel import run
from densecrf.validation import (
    ArgumentError,
    check_integer,
    check_keywords,
    warn,
    with_near_names,
)

if TYPE_CHECKING:
    from densecrf.solvers.registry import MethodName
    from densecrf.solvers.result import Result

__all__ = ["ON_DEVICE", "Failure", "build", "queue_on", "refine", "refine_many"]

ON_CORES, ON_DEVICE = 2, 16  # items of `refine_many` at a time, by default


@with_near_names
def refine(
    image: Any,
    probabilities: Any,
    *,
    model: str | Parameters = "default",
    strength: float = 1.0,
    sigma: Any = None,
    weight: float | None = None,
    sigma_xy: Any = None,
    sigma_color: Any = None,
    bilateral_weight: float | None = None,
    scale_sigmas: bool | float | None = None,
    kind: Kind | None = None,
    axis: int | None = None,
    channel_axis: int | None = None,
    n_labels: int | None = None,
    void: Any = "auto",
    ignore: Any = None,
    seeds: Any = None,
    confidence: float | None = None,
    clip: float = 1e-5,
    image_range: tuple[float, float] | None = None,
    method: "MethodName" = "lp",
    gap: float | None = None,
    time_limit: float | None = None,
    max_iterations: int | None = None,
    threads: int | None = None,
    device: Any = None,
    callback: Callable[[Any], Any] | None = None,
    progress: bool = False,
    method_options: dict[str, Any] | None = None,
) -> "Result":
    """Refine a network's output, or an annotation, along the edges of its image.

    Parameters
    ----------
    image : array_like or torch.Tensor
        The image or volume: channels last, channels first, or none, also PyTorch's (1, channels,
        height, width). Colours from 0 to 255, or from 0 to 1 if it holds floating-point numbers;
        otherwise see `image_range`. An opaque alpha channel is ignored.
    probabilities : array_like or torch.Tensor
        Scores of the pixels: probabilities or logits with the label axis first, last or
        behind a batch axis of one, one integer label per pixel, or one foreground probability per
        pixel. Ambiguous input is refused; the error names both readings.
    model : str, path-like or Parameters
        The energy's parameters: the name of a preset (`densecrf.model.presets.PRESETS`), a file
        of `densecrf.adapt` or `densecrf.fit`, or the object.
    strength : float
        Factor of the pairwise weights: 0 leaves the input as it is, 1 is the model.
        The default model's own strength follows the resolution of the scores
        (`densecrf.model.resolution`); ``print(result)`` shows it.
    sigma : float or sequence of float, optional
        Standard deviation of the spatial kernel in pixels, one or one per axis; the model's by
        default, as for the next four.
    weight : float, optional
        Weight of the spatial kernel.
    sigma_xy : float or sequence of float, optional
        Standard deviation of position in the bilateral kernel, in pixels.
    sigma_color : float or sequence of float, optional
        Standard deviation of colour in the bilateral kernel, for colours from 0 to 255; one, or
        one per channel.
    bilateral_weight : float, optional
        Weight of the bilateral kernel; larger weights give smoother labellings.
    scale_sigmas : bool or float, optional
        Whether the standard deviations of positions follow the size of the image, so that the
        labelling does not depend on the resolution; a number multiplies them. The model decides by
        default; numbers given here are in pixels.
    kind : {"probabilities", "logits", "energies", "labels"}, optional
        The kind of `probabilities`, if their values do not show it.
    axis : int, optional
        The label axis of `probabilities`, if two fit. With it, scores of a lower resolution are
        resized to the image, bilinearly.
    channel_axis : int, optional
        The channel axis of `image`, if two fit; all its channels are used.
    n_labels : int, optional
        Number of labels, if `probabilities` are labels and some do not occur.
    void : int, sequence of int, None or "auto"
        Values of hard labels that mean unlabelled: 0 for pydensecrf's unsure label, None for no
        value. Such pixels have no unary, and the result does not have these values. By default
        (``"auto"``) 255, unless 0 and 255 are the only values of two labels: a binary mask.
    ignore : array_like of bool, optional
        Pixels with unreliable probabilities; their labels follow from the others, or from `seeds`.
    seeds : array_like, optional
        Pixels whose label is known: integers of the image's shape, -1 or 255 for the others; or,
        for two labels, True where the foreground (label 1) is certain.
    confidence : float, optional
        Probability that a hard label is right. By default the model's; the default model has a
        margin of 3 nats over the other labels.
    clip : float
        Smallest probability.
    image_range : (float, float), optional
        The values of black and white in `image`.
    method : str
        One of `densecrf.METHODS`. ``"lp"`` bounds its distance from the optimum; ``"mf"`` is mean
        field to convergence, ``"mf5"`` five iterations of it.
    gap : float, optional
        Relative gap at which a method with a lower bound stops; the method's own by default.
    time_limit : float, optional
        Seconds after which the best labelling so far is returned.
    max_iterations : int, optional
        Maximum number of iterations.
    threads : int, optional
        Maximum number of threads of the compiled core; the result does not depend on it.
    device : str or torch.device, optional
        Where to solve, for example ``"cuda"``; needs PyTorch. The result always holds NumPy arrays.
    callback : callable, optional
        Called after each iteration with the best result so far; returning True stops.
    progress : bool
        Show a progress bar, in terminals and notebooks.
    method_options : dict, optional
        The method's own options.

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
    >>> refine(image, p, bilateral_weight=5).labels[0]
    array([0, 0, 0, 1, 1, 1])
    """
    specification = Specification(
        model=model,
        strength=strength,
        sigma=sigma,
        weight=weight,
        sigma_xy=sigma_xy,
        sigma_color=sigma_color,
        bilateral_weight=bilateral_weight,
        confidence=confidence,
        scale_sigmas=scale_sigmas,
        kind=kind,
        axis=axis,
        channel_axis=channel_axis,
        n_labels=n_labels,
        void=void,
        clip=clip,
        image_range=image_range,
    )
    crf = specification.crf(image, probabilities, ignore=ignore, seeds=seeds)
    return _solved(
        crf,
        method,
        method_options,
        gap=gap,
        time_limit=time_limit,
        max_iterations=max_iterations,
        threads=threads,
        device=device,
        callback=callback,
        progress=progress,
    )


def build(
    image: Any, probabilities: Any, *, ignore: Any = None, seeds: Any = None, **keywords: Any
) -> DenseCRF:
    """Return the energy that `refine` minimises; the parameters are those of `refine`."""
    check_keywords(Specification, keywords)
    return Specification(**keywords).crf(image, probabilities, ignore=ignore, seeds=seeds)


def _solved(
    crf: DenseCRF,
    method: str = "lp",
    method_options: dict[str, Any] | None = None,
    **limits: Any,
) -> "Result":
    """Solve, and warn of a suspicious labelling."""
    result = crf.solve(method, **limits, **(method_options or {}))
    result.info["model"] = derived(crf)
    if suspicious := result.changes.warning():
        warn("labels", suspicious)
    return result


@dataclass(frozen=True)
class Failure:
    """An item of `refine_many` that could not be refined.

    Attributes
    ----------
    index : int
        Its index.
    error : Exception
        Its error.
    """

    index: int
    error: Exception

    def __bool__(self) -> bool:
        """Return False, so that ``filter(None, ...)`` keeps the results."""
        return False


def refine_many(
    images: Iterable[Any],
    probabilities: Iterable[Any],
    *,
    workers: int | None = None,
    processes: bool = False,
    client: Any = None,
    batch: int = 64,
    **options: Any,
) -> "Iterator[Result | Failure]":
    """Refine many images at a time; yields a result for each, in their order.

    An item that fails is yielded as a `Failure`, and the others continue. At most ``2 * workers``
    items are read ahead, so that neither input nor output need fit in memory. The calling thread
    reads the iterables. After Ctrl-C no further item begins; running ones are yielded before
    KeyboardInterrupt is raised.

    Parameters
    ----------
    images, probabilities : iterable of array_like
        Arguments of `refine`, one each per item; they must have one length.
    workers : int, optional
        Items at a time: 2 by default, each on one thread unless `threads` is given; 16 on a GPU
        (`device`), where they advance together, and one that ends makes room for the next.
    processes : bool
        Whether the workers are processes, for options that hold Python's lock, such as a callback
        that computes. Arguments and results are then copied between them, and a script needs
        ``if __name__ == "__main__":``. Otherwise threads are as fast, and share memory.
    client : dask.distributed.Client, optional
        A client whose workers do the work instead of threads of this process. Items may then also
        be paths of ``.npy`` files that all workers can read.
    batch : int
        With a client: items per task, so that 100,000 small images do not overload its
        scheduler.
    **options
        Passed to `refine`.

    Examples
    --------
    >>> import numpy as np
    >>> image, p = np.zeros((4, 6, 3), np.uint8), np.full((2, 4, 6), 0.5)
    >>> p[0] += 0.4
    >>> p[1] -= 0.4
    >>> [type(each).__name__ for each in refine_many([image] * 3, [p, p[:, :3], p])]
    ['Result', 'Failure', 'Result']
    """
    workers = None if workers is None else check_integer("workers", workers, at_least=1)
    check_integer("batch", batch, at_least=1)
    check_keywords(refine, options)  # a wrong one fails here, once, and so does a wrong model
    read = {name: options.pop(name) for name in KEYWORDS if name in options}
    queue = None
    if not processes and client is None:
        queue = queue_on(options.get("device"), workers or ON_DEVICE)
    task: Callable[..., Any] = partial(
        _refine_one, Specification(**read), {"threads": 1} | options, client is not None
    )
    done = run(
        task if queue is None else queue.shared_by(task),
        _pairs(iter(images), iter(probabilities)),
        workers=workers or (ON_CORES if queue is None else ON_DEVICE),
        processes=processes,
        client=client,
        batch=batch,
        ordered=True,
        name="refine",
    )
    return _results(done, queue)


def queue_on(device: Any, workers: int) -> Any:
    """Return what minimises on a device for so many threads, if it can."""
    if device is None:
        return None
    check_installed(f"device={device!r}", "torch")
    from densecrf.torch.queue import DeviceQueue, advances_together

    return DeviceQueue(device, workers) if advances_together(device) else None


def _results(done: Any, queue: Any) -> "Iterator[Result | Failure]":
    with queue or nullcontext(), closing(done):
        for each in done:
            yield each.answer if each.error is None else Failure(each.number, each.error)


def _refine_one(
    specification: Specification, options: dict[str, Any], far: bool, image: Any, known: Any
) -> "Result":
    """Refine an image, possibly on a worker of a cluster.

    The options are those of `refine` that are not part of the specification.
    """
    arrays = {name: options[name] for name in ("ignore", "seeds") if name in options}
    limits = {name: value for name, value in options.items() if name not in arrays}
    if far:
        image, known = (np.load(x) if isinstance(x, (str, Path)) else x for x in (image, known))
    result = _solved(specification.crf(image, known, **arrays), **limits)
    if far:
        result.crf = None  # as large as the input
    return result


def _pairs(images: Iterator[Any], probabilities: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield one of each, and refuse another number of one than of the other."""
    for image, known in zip_longest(images, probabilities, fillvalue=_pairs):
        if image is _pairs or known is _pairs:
            remedy = f"{'more' if image is _pairs else 'fewer'} than images; give one per image"
            raise ArgumentError("probabilities", ..., remedy)
        yield image, known
