"""Clips: frames and their scores, read frame by frame, as arrays with time first.

Frames come from an array, a folder of images or a video file; scores from an array, or a folder
with one file per frame. A frame and its scores are read as by `densecrf.refine`: scores may have a
lower resolution, and labels may be first or last.
"""

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from densecrf.io.errors import FileFormatError
from densecrf.io.images import IMAGE_SUFFIXES, read_image, read_labels
from densecrf.io.opening import by_numbers, kind_of_file
from densecrf.io.unaries import SCORE_SUFFIXES, read_known
from densecrf.large.planning import MEASURED_FRAMES, Inputs
from densecrf.large.sources import Source, needs, open_source
from densecrf.large.tiles import Box
from densecrf.model.reading import Layout, enlargement, layout_of, picked, sums_to_one
from densecrf.model.resample import resize_bilinear
from densecrf.model.specification import Specification
from densecrf.validation import ArgumentError

__all__ = ["VIDEO_SUFFIXES", "frame_files", "open_clip"]

VIDEO_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg", ".gif")

Array = npt.NDArray[Any]


class Frames(NamedTuple):
    """Arrays of one shape, one for each frame.

    Attributes
    ----------
    place, identity, kind
        As of `densecrf.large.sources.Source`.
    length : int
        Their number.
    some : callable
        Returns the frames from one index to another, a list.
    """

    place: str
    identity: str
    length: int
    some: Callable[[int, int], list[Array]]
    kind: str | None = None

    def looked_at(self) -> list[Array]:
        """Return some frames, over the whole clip."""
        numbers = {int(t) for t in np.linspace(0, self.length - 1, MEASURED_FRAMES)}
        return [self.some(t, t + 1)[0] for t in sorted(numbers)]


def open_clip(frames: Any, scores: Any, specification: Specification) -> Inputs:
    """Return the frames (t, y, x, channels), and their scores, labels first."""
    native = specification.image_range is not None
    pictures = _open("frames", frames, partial(read_image, native=native))
    names = frame_files(frames)
    known = _open("scores", scores, _read_scores, names)
    if pictures.length != known.length:
        remedy = f"{known.length} for {pictures.length} frames; give one for each"
        raise ArgumentError("scores", ..., remedy)
    picture, samples = pictures.some(0, 1)[0], known.looked_at()
    layout = layout_of(
        picture.shape,
        samples[0].shape,
        samples[0].dtype,
        kind=specification.kind or known.kind,
        axis=specification.axis,
        channel_axis=specification.channel_axis,
        adds_up=lambda axes, total: all(
            sums_to_one(picked(each, axes), total=total) for each in samples
        ),
        fractions=lambda: any((each != np.rint(each)).any() for each in samples),
    )
    if len(layout.picture.grid) != 2:
        remedy = f"a frame has shape {picture.shape}; give (t, y, x) or (t, y, x, channels)"
        raise ArgumentError("frames", ..., remedy)
    return Inputs(*_sources(pictures, known, layout, picture, samples[0]))


def _sources(
    pictures: Frames, known: Frames, layout: Layout, picture: Array, sample: Array
) -> tuple[Source, Source, Any, float]:
    """Return the inputs as `densecrf.large` reads them."""
    count, grid = pictures.length, layout.picture.grid
    channels = picture.shape[layout.picture.axes[-1]] if len(layout.picture.axes) == 3 else 1
    enlarged, dtype = math.inf, sample.dtype
    if layout.resized:
        enlarged = enlargement(picked(sample, layout.axes).shape[1:], grid)
        dtype = np.dtype(np.float64 if dtype == np.float64 else np.float32)
    image = Source(
        pictures.place,
        (count, *grid, channels),
        picture.dtype,
        pictures.identity,
        partial(_window_of_frames, pictures, layout, picture.shape),
        portable=False,
    )
    labels = (sample.shape[layout.axes[0]],) if layout.content == "scores" else ()
    values = Source(
        known.place,
        (*labels, count, *grid),
        dtype,
        known.identity,
        partial(_window_of_scores, known, layout, sample.shape),
        portable=False,
        kind=known.kind,
    )
    return image, values, layout.content, enlarged


def _window_of_frames(frames: Frames, layout: Layout, shape: tuple[int, ...], box: Box) -> Array:
    time, *place, bands = box
    out = []
    for t, frame in enumerate(frames.some(time.start, time.stop), time.start):
        _check_shape("frames", frames, t, frame, shape)
        whole = picked(frame, layout.picture.axes).reshape(*layout.picture.grid, -1)
        out.append(whole[tuple(place)][..., bands])
    return np.stack(out)


def _window_of_scores(frames: Frames, layout: Layout, shape: tuple[int, ...], box: Box) -> Array:
    labels = box[:1] if layout.content == "scores" else ()
    time, *place = box[len(labels) :]
    out = []
    for t, frame in enumerate(frames.some(time.start, time.stop), time.start):
        _check_shape("scores", frames, t, frame, shape)
        values = picked(frame, layout.axes)
        if layout.resized:
            values = resize_bilinear(values, layout.picture.grid)
        out.append(values[box[: len(labels)] + tuple(place)])
    return np.stack(out, len(labels))


def _check_shape(name: str, frames: Frames, t: int, frame: Array, shape: tuple[int, ...]) -> None:
    if frame.shape != shape:
        remedy = f"{frames.place}: frame {t} has shape {frame.shape}, the first one {shape}"
        raise ArgumentError(name, ..., f"{remedy}; give frames of one size")


# --- where frames come from ----------------------------------------------------------------------


def _open(
    name: str, given: Any, reader: Callable[[Any], Any], names: Sequence[Path] | None = None
) -> Frames:
    """Return frames from a folder, a list of files, a video file, or an array with time first."""
    if hasattr(given, "detach"):  # a tensor
        given = np.asarray(given.detach().cpu())
    if isinstance(given, (str, os.PathLike)):
        path = Path(given)
        if path.is_dir() and not path.name.lower().endswith(".zarr"):
            given = _files_in(name, path, names)
        elif path.suffix.lower() in VIDEO_SUFFIXES:
            return _video(name, path)
        elif path.suffix.lower() in IMAGE_SUFFIXES:  # a clip of one frame
            given = [path]
    if _are_paths(given):
        return _of_files(name, [Path(each) for each in given], reader)
    if not hasattr(given, "shape") and hasattr(given, "__next__"):
        remedy = "an iterator can be read only once; give an array, a folder or a video file"
        raise ArgumentError(name, ..., remedy)
    source = open_source(name, given)
    if len(source.shape) < 3 or 0 in source.shape:
        remedy = f"shape {source.shape}; give (t, y, x) or (t, y, x, channels or labels)"
        raise ArgumentError(name, ..., remedy)

    def some(first: int, end: int) -> list[Array]:
        box = (slice(first, end), *(slice(0, side) for side in source.shape[1:]))
        return list(source.read(name, box))

    return Frames(source.place, source.identity, source.shape[0], some, source.kind)


def _are_paths(given: Any) -> bool:
    several = isinstance(given, (list, tuple)) and len(given) > 0
    return several and all(isinstance(each, (str, os.PathLike)) for each in given)


def frame_files(frames: Any) -> list[Path] | None:
    """Return the files of frames, in the order of their numbers; None for arrays and videos."""
    if _are_paths(frames):
        return [Path(each) for each in frames]
    if not isinstance(frames, (str, os.PathLike)):
        return None
    path = Path(frames)
    if path.suffix.lower() in IMAGE_SUFFIXES:
        return [path]
    if not path.is_dir() or path.name.lower().endswith(".zarr"):
        return None
    return _files_in("frames", path, None)


def _files_in(name: str, folder: Path, names: Sequence[Path] | None) -> list[Path]:
    """Return the images of a folder, or the file of each frame with these names."""
    wanted = IMAGE_SUFFIXES if name == "frames" else (*SCORE_SUFFIXES, *IMAGE_SUFFIXES)
    found = [path for path in folder.iterdir() if path.suffix.lower() in wanted]
    if not found:
        raise FileFormatError(folder, f"holds no {name}: files with {', '.join(wanted)}")
    if names is None:
        return sorted(found, key=by_numbers)
    by_stem = {path.stem: path for path in found}
    missing = [path.stem for path in names if path.stem not in by_stem]
    if missing:
        remedy = f"has no {name} for {len(missing)} of {len(names)} frames, such as {missing[0]}"
        raise FileFormatError(folder, f"{remedy}; give each file the name of its frame")
    return [by_stem[path.stem] for path in names]


def _of_files(name: str, files: list[Path], reader: Callable[[Any], Any]) -> Frames:
    """Return frames of one file each."""
    digest = hashlib.blake2b(digest_size=16)
    for path in files:
        if (kind := kind_of_file(path)) is not None:
            raise FileFormatError(path, f"is {kind}, not a file")
        found = path.stat()
        digest.update(f"{path.resolve()} {found.st_size} {found.st_mtime_ns}\n".encode())

    def some(first: int, end: int) -> list[Array]:
        return [np.asarray(reader(path)) for path in files[first:end]]

    kind = None
    if name == "scores" and files[0].suffix.lower() in SCORE_SUFFIXES:
        kind = read_known(files[0])[1]
    elif name == "scores":
        kind = "labels"
    return Frames(str(files[0].parent), digest.hexdigest(), len(files), some, kind)


def _read_scores(path: Path) -> Array:
    """Read the scores of a frame, or its image of labels."""
    if path.suffix.lower() in SCORE_SUFFIXES:
        return read_known(path)[0]
    return read_labels(path)


def _video(name: str, path: Path) -> Frames:
    """Return the frames of a video file, RGB, by PyAV."""
    if name != "frames":
        raise FileFormatError(path, "is a video; give scores as an array or a folder of files")
    if not path.exists():
        raise FileNotFoundError(2, f"{name}: no such file", str(path))
    if (kind := kind_of_file(path)) is not None:
        raise FileFormatError(path, f"is {kind}, not a file")
    av = needs("av", str(path), extra="video")
    try:
        with av.open(str(path)) as container:
            times = sorted({packet.pts for packet in container.demux(video=0)} - {None})
    except (av.FFmpegError, IndexError, ValueError) as error:
        raise FileFormatError(path, f"cannot be read as a video ({error})") from error
    if not times:
        raise FileFormatError(path, "holds no frames")
    found = path.stat()
    identity = f"{path.resolve()} {found.st_size} {found.st_mtime_ns}"
    return Frames(str(path), identity, len(times), partial(_decoded, av, path, times))


def _decoded(av: Any, path: Path, times: list[int], first: int, end: int) -> list[Array]:
    """Decode some frames, starting at the previous key frame."""
    wanted = dict.fromkeys(times[first:end])
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        container.seek(times[first], stream=stream, backward=True)
        for frame in container.decode(stream):
            if frame.pts in wanted:
                wanted[frame.pts] = frame.to_ndarray(format="rgb24")
            if frame.pts is not None and frame.pts >= times[end - 1]:
                break
    lost = [times.index(pts) for pts, frame in wanted.items() if frame is None]
    if lost:
        raise FileFormatError(path, f"frame {lost[0]} cannot be decoded")
    return [frame for frame in wanted.values() if frame is not None]
