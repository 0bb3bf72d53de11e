"""A folder of images from files to files: ``densecrf segment`` against a loop around pydensecrf."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from benchmarks import peer
from benchmarks.harness import SHARED, NotAtHandError, Section, cores, times
from benchmarks.mean_field import PARAMETERS
from densecrf.model.unaries import from_logits
from densecrf.native import core

TEXT = """
{count} images of MSRC (320 × 213, 21 labels): read the photograph and the network's logits, solve,
write the labels and an overlay as PNG. Images per second of elapsed time, processes started and
libraries imported within it. *densecrf segment* with `--jobs` as many as there are cores, `mf5` and
`lp` to a proven gap of 0.1 %; the loop around pydensecrf makes five iterations per image, in as
many processes of joblib.
"""
COUNTS = {"small": 10, "medium": 40, "full": 100}
# An installed package has its bytecode; a checkout writes it at the first run.
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


def run(scale: str) -> Section:
    """Measure 1, 2, 4 and 16 cores, as far as there are so many."""
    folder = SHARED / "msrc"
    if not folder.is_dir() or not peer.installed():
        raise NotAtHandError(f"pydensecrf, or MSRC at {folder}")
    names = sorted(path.stem for path in (folder / "logits").glob("*.npz"))[: COUNTS[scale]]
    rows: list[tuple[Any, ...]] = []
    _ours(folder, names[:1], "mf5", 1)  # writes the bytecode
    for count in (each for each in (1, 2, 4, 16) if each <= core().available_threads()):
        with cores(count):
            seconds = [_ours(folder, names, method, count) for method in ("mf5", "lp")]
            seconds.append(_theirs(folder, names, count))
        rates = [f"{len(names) / each:.1f}" for each in seconds]
        rows.append((count, *rates, times(seconds[2] / seconds[0]), times(seconds[2] / seconds[1])))
    columns = ("cores", "segment, mf5", "segment, lp", "pydensecrf loop", "mf5 / loop", "lp / loop")
    return Section("A folder of images", TEXT.format(count=len(names)), columns, rows)


def _photograph(folder: Path, name: str) -> Path:
    return min((folder / "images").glob(f"{name}.*"))


def _ours(folder: Path, names: list[str], method: str, jobs: int) -> float:
    images = [str(_photograph(folder, name)) for name in names]
    sigma, weight, xy, color, bilateral = PARAMETERS
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "densecrf", "segment", *images, "--quiet"]
        command += ["--probs", str(folder / "logits"), "--kind", "logits", "--axis", "last"]
        command += ["--out", out, "--jobs", str(jobs), "--method", method, "--no-adapt"]
        command += ["--sigma", str(sigma), "--weight", str(weight), "--sigma-xy", str(xy)]
        command += ["--sigma-color", str(color), "--bilateral-weight", str(bilateral)]
        command += ["--preset", "deeplab", "--fixed-sigmas"]
        started = time.perf_counter()
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(command, check=True, env=ENVIRONMENT, **silent)
        return time.perf_counter() - started


def _theirs(folder: Path, names: list[str], jobs: int) -> float:
    with tempfile.TemporaryDirectory() as out:
        started = time.perf_counter()
        one = joblib.delayed(_by_pydensecrf)
        joblib.Parallel(jobs)(one(folder, Path(out), name) for name in names)
        return time.perf_counter() - started


def _by_pydensecrf(folder: Path, out: Path, name: str) -> None:
    """Segment one image as pydensecrf's users do."""
    from PIL import Image

    image = np.array(Image.open(_photograph(folder, name)))
    logits = np.load(folder / "logits" / f"{name}.npz")["logits"]
    unary = from_logits(logits, axis=-1, shape=image.shape[:2])
    marginals = peer.mean_field(unary, image, PARAMETERS)
    labels = marginals.argmax(0).reshape(image.shape[:2]).astype(np.uint8)
    colors = np.random.default_rng(0).integers(0, 256, (256, 3), dtype=np.uint8)
    Image.fromarray(labels).save(out / f"{name}.png")
    overlay = (0.5 * image + 0.5 * colors[labels]).astype(np.uint8)
    Image.fromarray(overlay).save(out / f"{name}.overlay.png")
