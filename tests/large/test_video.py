"""Clips: one energy and one certificate, whatever the windows, and wherever frames come from."""

import itertools
import signal
import subprocess
import sys

import numpy as np
import pytest

import densecrf
from densecrf.io import write_image
from densecrf.large.frames import open_clip
from densecrf.large.motion import at_rest, moved
from densecrf.large.planning import declared
from densecrf.large.store import IncompatibleRunError
from densecrf.large.video import SIGMA_T
from densecrf.model.resample import resize_bilinear
from densecrf.model.specification import Specification
from densecrf.refinement import build

MODEL = {"sigma": 1.5, "weight": 0.4, "sigma_xy": 4.0, "sigma_color": 20.0, "bilateral_weight": 0.8}
SHAPE = (9, 14, 18)


def clip(shape=SHAPE, labels=2, seed=0):
    """A square that moves over noise, and scores of it that flicker: (t, y, x, 3), (t, L, y, x)."""
    rng = np.random.default_rng(seed)
    frames = rng.normal(90, 8, (*shape, 3))
    p = rng.random((shape[0], labels, *shape[1:])) + 0.5
    p[:, 0] += 0.4
    for t in range(shape[0]):
        place = (t, slice(2, shape[1] - 2), slice(1 + t, min(8 + t, shape[2])))
        frames[place] += 90
        p[(t, 1, *place[1:])] += 0.4 + 0.4 * (t % 3)
    return np.clip(frames, 0, 255).astype(np.uint8), (p / p.sum(1, keepdims=True)).astype("f4")


def volume(frames, p, sigma_t):
    """The model of the clip as a volume in memory."""
    sigmas = [(sigma_t, MODEL[name], MODEL[name]) for name in ("sigma", "sigma_xy")]
    kernels = [
        densecrf.Spatial(sigmas[0], MODEL["weight"]),
        densecrf.Bilateral(frames, sigmas[1], MODEL["sigma_color"], MODEL["bilateral_weight"]),
    ]
    return densecrf.DenseCRF.from_probabilities(p, kernels, axis=1)


@pytest.mark.parametrize("window", [4, 100])
@pytest.mark.parametrize("labels", [2, 3])
def test_a_clip_has_the_energy_of_a_volume_whatever_the_windows(window, labels):
    frames, p = clip(labels=labels)
    result = densecrf.refine_video(frames, p, sigma_t=0.7, window=window, **MODEL)
    crf = volume(frames, p, 0.7)
    assert len(result.tiles) == (3 if window == 4 else 1)
    assert len(np.unique(result.labels)) == 2
    assert result.energy == pytest.approx(crf.energy(result.labels), rel=1e-6)
    best = crf.solve("lp", gap=1e-4)
    assert result.converged
    assert result.lower_bound <= best.energy <= result.energy + 1e-3 * abs(result.energy)
    assert best.lower_bound <= result.energy


@pytest.mark.parametrize("seed", range(4))
def test_no_labelling_of_a_tiny_clip_has_an_energy_below_the_bound_of_its_windows(seed):
    rng = np.random.default_rng(seed)
    frames = rng.integers(0, 60, (4, 2, 2, 3)).astype(np.uint8)
    p = rng.uniform(0.2, 0.8, (4, 2, 2))
    result = densecrf.refine_video(
        frames, np.stack([1 - p, p], 1), sigma_t=0.25, window=2, axis=0, **MODEL
    )
    crf = volume(frames, np.stack([1 - p, p], 1), 0.25)
    every = (np.reshape(x, p.shape) for x in itertools.product((0, 1), repeat=p.size))
    least = min(map(crf.energy, every))
    assert len(result.tiles) > 1
    assert result.lower_bound <= least <= result.energy
    assert result.energy <= least + 1e-3 * abs(least)


def test_the_default_model_is_that_of_a_frame():
    rng = np.random.default_rng(0)
    frame = rng.integers(0, 255, (40, 60, 3)).astype(np.uint8)
    scores = rng.normal(0, 2, (2, 10, 15))
    specification = Specification(kind="logits", axis=0)
    inputs = open_clip(np.stack([frame] * 7), np.stack([scores] * 7), specification)
    job, _ = declared(inputs, specification, sigma_t=SIGMA_T, folder=None, tile=(4, 40, 60))
    spatial, bilateral = build(frame, scores, kind="logits", axis=0).kernels
    assert job.kernels[0].positions == pytest.approx((SIGMA_T, spatial.sigma, spatial.sigma))
    assert job.kernels[1].positions[1:] == pytest.approx((bilateral.sigma_xy * 5 / 8,) * 2)
    assert job.kernels[1].colors == pytest.approx((bilateral.sigma_color,) * 3)
    assert [k.weight for k in job.kernels] == pytest.approx([spatial.weight, bilateral.weight])


def test_labels_flicker_less_than_frame_by_frame():
    frames, p = clip((8, 24, 32), seed=3)
    alone = np.stack(
        [densecrf.refine(f, s, axis=0, **MODEL).labels for f, s in zip(frames, p, strict=True)]
    )
    together = densecrf.refine_video(frames, p, axis=0, sigma_t=2, **MODEL).labels
    still = frames[1:, ..., 0] // 135 == frames[:-1, ..., 0] // 135
    changes = [((x[1:] != x[:-1]) & still).sum() for x in (alone, together)]
    assert changes[1] < changes[0] / 2
    assert len(np.unique(together)) == 2


@pytest.mark.parametrize("window", [4, 100])
def test_a_flow_of_zero_changes_nothing(window):
    frames, p = clip()
    plain, still = (
        densecrf.refine_video(frames, p, sigma_t=0.7, window=window, flow=flow, **MODEL)
        for flow in (None, np.zeros((*SHAPE, 2), np.float32))
    )
    assert still.energy == plain.energy
    assert still.lower_bound == plain.lower_bound
    assert (still.labels == plain.labels).all()


@pytest.mark.parametrize("window", [4, 100])
def test_positions_follow_the_flow_through_all_windows(window):
    frames, p = clip()
    rng = np.random.default_rng(1)
    flow = rng.normal((1, 0), 0.4, (SHAPE[0] - 1, *SHAPE[1:], 2))
    result = densecrf.refine_video(frames, p, sigma_t=0.7, window=window, flow=flow, **MODEL)
    places = [at_rest(SHAPE[1:])]
    for each in flow:
        places.append(moved(places[-1], np.moveaxis(each[..., ::-1], -1, 0)))
    y, x = np.stack(places, 1)
    time = np.broadcast_to(np.arange(SHAPE[0])[:, None, None], SHAPE) / 0.7
    colors = np.moveaxis(frames / MODEL["sigma_color"], -1, 0)
    kernels = [
        densecrf.Features(np.stack([x / s, y / s, time, *more], -1).reshape(-1, 3 + len(more)), w)
        for s, more, w in ((1.5, (), MODEL["weight"]), (4.0, colors, MODEL["bilateral_weight"]))
    ]
    crf = densecrf.DenseCRF.from_probabilities(p, kernels, axis=1)
    assert result.energy == pytest.approx(crf.energy(result.labels), rel=1e-5)
    assert result.lower_bound <= crf.solve("lp", gap=1e-4).energy * (1 + 1e-5)


def test_what_moves_by_the_flow_keeps_its_positions():
    flow = np.zeros((2, 6, 8))
    flow[0], flow[1] = 0.5, 1.25
    y, x = moved(moved(at_rest((6, 8)), flow), flow)
    assert np.allclose(y, at_rest((6, 8))[0] - 1)
    assert np.allclose(x, at_rest((6, 8))[1] - 2.5)


def test_scores_of_a_lower_resolution_are_resized_frame_by_frame():
    frames, _ = clip()
    logits = np.random.default_rng(0).normal(0, 2, (SHAPE[0], 7, 9, 3))
    whole = np.stack([resize_bilinear(np.moveaxis(z, -1, 0), SHAPE[1:]) for z in logits])
    small, large = (
        densecrf.refine_video(frames, z, kind="logits", axis=axis, sigma_t=2, **MODEL)
        for z, axis in ((logits, -1), (whole, 0))
    )
    assert (small.labels == large.labels).all()
    assert small.energy == pytest.approx(large.energy)


def test_folders_lists_and_files_give_the_labels_of_arrays(tmp_path):
    frames, p = clip()
    logits = np.log(p)
    for name in ("frames", "scores"):
        (tmp_path / name).mkdir()
    for t, (frame, z) in enumerate(zip(frames, logits, strict=True)):  # 10 comes behind 9
        write_image(tmp_path / "frames" / f"f{t + 2}.png", frame)
        np.savez(tmp_path / "scores" / f"f{t + 2}.npz", logits=z)
    np.save(tmp_path / "frames.npy", frames)
    np.save(tmp_path / "scores.npy", logits)
    expected = densecrf.refine_video(frames, logits, sigma_t=2, kind="logits", axis=0, **MODEL)
    files = [tmp_path / "frames" / f"f{t + 2}.png" for t in range(len(frames))]
    for pictures, scores in (
        (tmp_path / "frames", tmp_path / "scores"),
        (files, logits),
        (tmp_path / "frames.npy", tmp_path / "scores.npy"),
    ):
        result = densecrf.refine_video(pictures, scores, sigma_t=2, kind="logits", axis=0, **MODEL)
        assert (result.labels == expected.labels).all()
        assert result.energy == expected.energy


def test_any_frames_of_a_video_file_are_read(tmp_path):
    av = pytest.importorskip("av")
    frames, p = clip((30, 32, 48))
    path = tmp_path / "clip.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.gop_size = 48, 32, 7
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    with av.open(str(path)) as container:
        decoded = np.stack([f.to_ndarray(format="rgb24") for f in container.decode(video=0)])
    image = open_clip(path, p, Specification(axis=0)).image
    assert image.shape == (30, 32, 48, 3)
    for first, end in ((0, 30), (3, 4), (11, 25), (29, 30)):
        box = (slice(first, end), slice(0, 32), slice(4, 20), slice(0, 3))
        assert (image.window(box) == decoded[box]).all()


def test_an_interrupted_run_goes_on(tmp_path):
    frames, p = clip()
    out = tmp_path / "labels.npy"
    options = {"sigma_t": 0.7, "window": 4, "flow": np.ones((*SHAPE, 2)), "gap": 1e-4, **MODEL}
    expected = densecrf.refine_video(frames, p, **options)

    def interrupt(stage, done, count):
        if stage == "iterates-1":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        densecrf.refine_video(frames, p, out=out, progress=interrupt, **options)
    with pytest.raises(IncompatibleRunError, match="flow"):
        densecrf.refine_video(frames, p, out=out, **options | {"flow": None})
    stages = []
    result = densecrf.refine_video(
        frames, p, out=out, progress=lambda stage, *_: stages.append(stage), **options
    )
    assert "positions" not in stages
    assert "masses" not in stages
    assert (np.load(out) == expected.labels).all()
    assert result.energy == expected.energy
    assert [path.name for path in tmp_path.iterdir()] == ["labels.npy"]


KILLED = """
import os, signal, sys
import numpy as np
import densecrf
from densecrf.large import planning

planning.worthwhile_sides = lambda asked, *_: asked  # as in these tests

def stop(stage, done, count):
    if stage == "iterates-1":
        os.kill(os.getpid(), signal.SIGKILL)

folder, options = sys.argv[1], {options!r}
frames, scores = (np.load(folder + name) for name in ("/frames.npy", "/scores.npy"))
densecrf.refine_video(frames, scores, out=folder + "/labels.npy", progress=stop, **options)
"""


def test_a_run_that_was_killed_goes_on(tmp_path):
    frames, p = clip()
    np.save(tmp_path / "frames.npy", frames)
    np.save(tmp_path / "scores.npy", p)
    options = {"sigma_t": 0.7, "window": 4, "gap": 1e-4, **MODEL}
    program = KILLED.replace("{options!r}", repr(options))
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    stages = []
    result = densecrf.refine_video(
        frames,
        p,
        out=tmp_path / "labels.npy",
        progress=lambda stage, *_: stages.append(stage),
        **options,
    )
    expected = densecrf.refine_video(frames, p, **options)
    assert "masses" not in stages
    assert (np.load(tmp_path / "labels.npy") == expected.labels).all()
    assert result.energy == expected.energy


FRAMES, P = clip((3, 6, 8))


@pytest.mark.parametrize(
    ("frames", "scores", "options", "message"),
    [
        (FRAMES, P[:2], {}, "scores.*2 for 3 frames; give one for each"),
        (FRAMES[0, 0], P, {}, r"frames.*\(t, y, x\)"),
        (FRAMES, P[:, :, :5], {}, "scores.*does not fit"),
        (iter(FRAMES), P, {}, "frames.*an iterator can be read only once"),
        (FRAMES, P, {"sigma_t": 0}, "sigma_t"),
        (FRAMES, P, {"sigma_t": np.nan}, "sigma_t"),
        (FRAMES, P, {"window": 1}, "window"),
        (FRAMES, P, {"window": 2.5}, "window"),
        (FRAMES, P, {"sigma": (1, 2, 3, 4)}, "sigma"),
        (FRAMES, P, {"flow": np.zeros((3, 6, 7, 2))}, r"flow.*give the displacements \(x, y\)"),
        (FRAMES, P, {"flow": np.full((3, 6, 8, 2), np.nan)}, "flow.*0 where unknown"),
        (FRAMES, P, {"flow": np.full((3, 6, 8, 2), 99.0)}, "flow.*up to 99 from frame 0"),
        (FRAMES, P, {"out": "labels.tif"}, "out.*npy or .zarr"),
        (FRAMES, P, {"method": "dc-neg"}, "method"),
        (FRAMES, np.where(P > 0.5, np.nan, P), {"axis": 0}, "scores|probabilities"),
        ("no such folder", P, {}, "no such file"),
        ("clip.mp4", P, {}, "no such file"),
        (FRAMES, "clip.mp4", {}, "is a video"),
    ],
)
def test_bad_input_is_refused_with_a_remedy(frames, scores, options, message):
    with pytest.raises((ValueError, OSError), match=f"(?s){message}"):
        densecrf.refine_video(frames, scores, **options)


def test_files_that_do_not_fit_are_named(tmp_path):
    frames, p = clip((3, 6, 8))
    for t, frame in enumerate(frames):
        write_image(tmp_path / f"f{t}.png", frame[: 6 - (t == 2)])
    with pytest.raises(ValueError, match=r"frame 2 has shape \(5, 8, 3\).*one size"):
        densecrf.refine_video(tmp_path, p, axis=0, sigma_t=2, **MODEL)
    scores = tmp_path / "scores"
    scores.mkdir()
    with pytest.raises(ValueError, match="holds no scores"):
        densecrf.refine_video(tmp_path, scores, axis=0)
    np.save(scores / "f0.npy", p[0])
    with pytest.raises(ValueError, match=r"no scores for 2 of 3 frames, such as f1"):
        densecrf.refine_video(tmp_path, scores, axis=0)
    (tmp_path / "clip.mp4").write_bytes(b"no video")
    with pytest.raises((ValueError, ModuleNotFoundError), match=r"cannot be read|needs av"):
        densecrf.refine_video(tmp_path / "clip.mp4", p)
