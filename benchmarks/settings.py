"""`lp` inside public projects' own settings, against pydensecrf's five iterations."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import peer
from benchmarks.distributions import each_on_a_core, images
from benchmarks.harness import NotAtHandError, Section, cores, times, two_kernels
from densecrf import DenseCRF
from densecrf.model.unaries import from_logits

TEXT = """
CPU time of `lp` to a proven gap of 0.1 % with one thread over pydensecrf's for its five mean-field
iterations, both with the construction of the model, on MSRC images with the network's scores, or
with its labels held with the probability given, at the settings that public projects use: standard
deviation / weight of the spatial kernel, standard deviations / weight of the bilateral one. *mf5*
is how far the energy of five iterations is above the bound, in the median. {count} images.
"""
EVERY = {"small": 60, "medium": 12, "full": 4}


@dataclass(frozen=True)
class Setting:
    """A project's kernels, and what it makes unary energies of."""

    project: str
    parameters: tuple[float, ...]
    held: float | None = None
    half: bool = False  # of the image's size

    def problem(self, image: np.ndarray, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the image and its unary energies, (labels, h, w)."""
        unary = from_logits(logits, axis=-1, shape=image.shape[:2])
        if self.half:
            image, unary = np.ascontiguousarray(image[::2, ::2]), unary[:, ::2, ::2]
        if self.held is None:
            return image, np.ascontiguousarray(unary, np.float32)
        present, labels = np.unique(unary.argmin(0), return_inverse=True)
        count = max(2, len(present))
        own = np.arange(count)[:, None, None] == labels.reshape(image.shape[:2])
        energies = -np.log(np.where(own, self.held, (1 - self.held) / (count - 1)))
        return image, energies.astype(np.float32)


SETTINGS = (
    Setting("SEAM", (3, 3, 80, 13, 10)),
    Setting("ToCo", (1, 1, 121, 5, 4)),
    Setting("deeplab", (1, 3, 67, 3, 4)),
    Setting("CLIP-ES", (1, 3, 67, 3, 4), held=0.7),
    Setting("irn", (3, 3, 50, 5, 10), held=0.7),
    Setting("L2G", (3 / 12, 3, 80 / 12, 13, 10)),
    Setting("dash_doodler", (3, 3, 1, 3.6, 100), held=0.9, half=True),
)


def run(scale: str) -> Section:
    """Measure some images with each setting."""
    if not peer.installed():
        raise NotAtHandError("pydensecrf is not installed")
    some = list(images("msrc", EVERY[scale]))
    columns = ("project", "setting", "median", "p95", "iterations", "mf5 above the bound")
    measured = each_on_a_core(measure, [(s, *each) for s in SETTINGS for each in some])
    rows: list[tuple[Any, ...]] = []
    for number, setting in enumerate(SETTINGS):
        own = np.array(measured[number * len(some) : (number + 1) * len(some)])
        median, tail = (times(float(np.percentile(own[:, 0], share))) for share in (50, 95))
        sigma, weight, xy, color, strength = (f"{value:.3g}" for value in setting.parameters)
        held = "" if setting.held is None else f", labels held with {setting.held:g}"
        told = f"{sigma}/{weight}, {xy}/{color}/{strength}{held}"
        iterations, above = np.median(own[:, 1]), np.median(own[:, 2])
        rows.append((setting.project, told, median, tail, f"{iterations:.0f}", f"{above:.1f} %"))
    return Section("Public settings", TEXT.format(count=len(some)), columns, rows)


def measure(setting: Setting, image: np.ndarray, logits: np.ndarray) -> tuple[float, float, float]:
    """Return the ratio of CPU times, the iterations, and how far `mf5` is above the bound."""
    image, unary = setting.problem(image, logits)

    def seconds(call: Any) -> tuple[float, Any]:
        started = time.process_time()
        answer = call()
        return time.process_time() - started, answer

    with cores(1):
        theirs = [
            seconds(lambda: peer.mean_field(unary, image, setting.parameters))[0] for _ in range(2)
        ]
        ours, result = seconds(
            lambda: DenseCRF(unary, two_kernels(image, setting.parameters)).solve("lp")
        )
        start = DenseCRF(unary, two_kernels(image, setting.parameters)).solve("mf5")
    above = 100 * (start.energy / result.lower_bound - 1)
    return ours / min(theirs), result.iterations, above
