"""Images cut into tiles: the same numbers as in memory, and what they cost.

``python -m benchmarks.large same`` compares tiles with the whole image in memory (``exact``: of
given labels and potentials alone);
``python -m benchmarks.large run --side 10000 --labels 5`` solves one mosaic of photographs on disk.
Both print a line of figures as soon as they have it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import threading
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np

import densecrf
from benchmarks.harness import SHARED
from densecrf.large import visits
from densecrf.large.planning import plan
from densecrf.large.visits import Before
from densecrf.model.parameters import Parameters
from densecrf.model.specification import Specification
from densecrf.problem.certificate import Costs, Potentials
from densecrf.problem.problem import problem_of
from densecrf.refinement import build

MODEL = Parameters(3, 3, 15, 13, 10)


def photographs(data: Path, labels: int, scale: int) -> list[tuple[Any, Any]]:
    """Return photographs and their network's most frequent labels, enlarged."""
    from PIL import Image

    found = []
    for path in sorted((data / "images").glob("*.png")):
        with Image.open(path) as opened:
            small = opened.convert("RGB")
            image = small.resize(
                (scale * small.width, scale * small.height), Image.Resampling.BICUBIC
            )
        logits = np.load(data / "logits" / f"{path.stem}.npz")["logits"]
        unary = densecrf.model.unaries.from_logits(
            logits, axis=-1, shape=(image.height, image.width)
        )
        p = np.exp(-unary[np.argsort(unary.mean((1, 2)))[:labels]]) + 1e-3
        found.append((np.asarray(image), (p / p.sum(0)).astype(np.float16)))
    return found


def mosaic(folder: Path, data: Path, shape: tuple[int, int], labels: int, scale: int = 1) -> None:
    """Write ``image.npy`` and ``p.npy``, photographs side by side, mirrored in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = photographs(data, labels, scale)
    image = np.lib.format.open_memmap(folder / "image.npy", "w+", np.uint8, (*shape, 3))
    rows = labels if labels > 2 else 1  # of two labels, the second one's
    grid = (rows, *shape) if rows > 1 else shape
    p = np.lib.format.open_memmap(folder / "p.npy", "w+", np.float16, grid)
    top = number = 0
    while top < shape[0]:
        left = tall = 0
        while left < shape[1]:
            own, known = pictures[number % len(pictures)]
            if number // len(pictures) % 2:
                own, known = own[:, ::-1], known[:, :, ::-1]
            if number // len(pictures) // 2 % 2:
                own, known = own[::-1], known[:, ::-1]
            own, known = own[: shape[0] - top, : shape[1] - left], known[-rows:]
            height, width = own.shape[:2]
            if tall and height < tall:  # a row is as tall as its first photograph
                own = np.pad(own, ((0, tall - height), (0, 0), (0, 0)), "edge")
                known = np.pad(known, ((0, 0), (0, tall), (0, 0)), "edge")
            tall = tall or height
            image[top : top + tall, left : left + width] = own[:tall]
            p[..., top : top + tall, left : left + width] = known[:, :tall, :width]
            left, number = left + width, number + 1
        top += tall
    image.flush()
    p.flush()


# --- the same numbers ---------------------------------------------------------------------------


def same(folder: Path, data: Path, arguments: Any) -> None:
    """Compare tiles with the whole image: energies, bounds, labels."""
    shape, labels = (arguments.side, arguments.side * 4 // 3), arguments.labels
    mosaic(folder, data, shape, max(labels, 3), arguments.scale)
    image, p = np.load(folder / "image.npy"), np.load(folder / "p.npy").astype(np.float32)
    p = np.stack([p[0], p[1:].sum(0)]) if labels == 2 else p
    p /= p.sum(0)
    np.save(folder / "p.npy", p)
    crf = densecrf.DenseCRF.from_probabilities(p, MODEL.kernels(image))
    y, z = potentials(labels, shape)
    dual = Potentials(y.reshape(labels, -1), z.reshape(labels, -1), 1.0)
    given = p.argmax(0)
    energy, bound = crf.energy(given), Costs(problem_of(crf), dual).bound
    for tile in arguments.tiles:
        found = evaluated(folder, tile, (y, z, given))
        line(tile=tile, energy_off=found[0] / energy - 1, bound_off=found[1] / bound - 1)
    if arguments.what == "exact":
        return
    known = {}
    for gap in (arguments.gap, *arguments.reference):
        started = time.process_time()
        whole = crf.solve("lp", gap=gap, threads=1)
        solved(f"in memory, {gap:g}", whole, started, known)
    for tile in arguments.tiles:
        started = time.process_time()
        result = densecrf.large.refine(
            folder / "image.npy",
            folder / "p.npy",
            tile=tile,
            model=MODEL,
            gap=arguments.gap,
            axis=0,
            threads=1,
            scratch=folder / f"run-{tile}",
        )
        solved(f"tiles of {tile}", result, started, known)
        differ = result.labels != known[f"in memory, {arguments.gap:g}"]
        picture(folder / f"differ-{labels}-{tile}.png", image, differ)


def solved(what: str, result: Any, started: float, known: dict[str, Any]) -> None:
    """Print what a run found, and on which share of the pixels its labels differ from others."""
    line(
        what=what,
        energy=result.energy,
        gap=result.gap,
        iterations=result.iterations,
        cpu=time.process_time() - started,
        differ={name: float((result.labels != labels).mean()) for name, labels in known.items()},
    )
    known[what] = result.labels


def potentials(labels: int, shape: tuple[int, int]) -> tuple[Any, Any]:
    """Return marginals and potentials whose extents are whole numbers, as tiles use them."""
    rng = np.random.default_rng(0)
    y = rng.random((labels, *shape), np.float32)
    y /= y.sum(0)
    z = rng.integers(0, 7, (labels, *shape)).astype(np.float32)
    for label in range(labels):  # potentials of each label from 0 to 7
        y[:, 0, label], y[label, 0, label] = 0, 1
        z[:, 0, label], z[label, 0, label] = 0, 6
    return y, z


def evaluated(folder: Path, tile: int, state: Any) -> tuple[float, float]:
    """Return energy and bound of given labels and potentials, by tiles."""
    y, z, labels = state
    job, _ = plan(
        folder / "image.npy",
        folder / "p.npy",
        Specification(MODEL, axis=0, scale_sigmas=False),
        folder=folder / f"exact-{tile}",
        tile=tile,
        inner=5,
        threads=1,
    )
    everything = tuple(slice(0, side) for side in labels.shape)
    marginals, kept = visits.stored_rows(job)
    y, z = y[:marginals], z[:kept]
    job.store.write("given", everything, np.concatenate([y, z]))
    job.store.write("labels", everything, labels[None].astype(np.uint16))
    tasks = range(len(job.tiling.tiles(0)))
    for task in tasks:
        visits.masses(job, task)
    before = Before("given", (0.0,) * len(z), (6.0,) * len(z), 1.0)
    extents = [[0.0, high] for high in before.highest()]
    records = [visits.certificate(job, 0, i, before, "labels", extents) for i in tasks]
    job.store.remove()
    return sum(each["energy"] for each in records), sum(each["bound"] for each in records)


def picture(path: Path, image: Any, differ: Any) -> None:
    """Show in red where labels differ."""
    from PIL import Image

    shown = image // 2
    shown[differ] = (255, 0, 0)
    Image.fromarray(shown).save(path)


# --- one large run ------------------------------------------------------------------------------


def run(folder: Path, data: Path, arguments: Any) -> None:
    """Solve a mosaic, tile by tile or in memory; print time and memory."""
    shape = (arguments.side, arguments.side)
    if not (folder / "image.npy").exists():
        started = time.time()
        mosaic(folder, data, shape, arguments.labels, arguments.scale)
        line(what="data", seconds=time.time() - started)
    image, p = folder / "image.npy", folder / "p.npy"
    axis = None if arguments.labels == 2 else 0
    started, used = time.time(), cpu()
    if arguments.memory:
        crf = build(
            np.load(image),
            np.load(p).astype(np.float32),
            model=MODEL,
            scale_sigmas=False,
            axis=axis,
        )
        result: Any = crf.solve(arguments.method, gap=arguments.gap, threads=arguments.threads)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        workers = 0
    else:
        with cluster(arguments.workers) as client, Peak() as memory:
            result = densecrf.large.refine(
                image,
                p,
                out=folder / f"{arguments.method}.npy",
                tile=arguments.tile,
                model=MODEL,
                gap=arguments.gap,
                method=arguments.method,
                client=client,
                threads=arguments.threads,
                axis=axis,
                inner=arguments.inner,
                progress=lambda stage, done, count: (
                    line(stage=stage, tiles=count, seconds=time.time() - started)
                    if done == count
                    else None
                ),
            )
            peak, workers = memory.gigabytes, arguments.workers
    seconds = time.time() - started
    line(
        what="in memory" if arguments.memory else "tiles",
        side=arguments.side,
        labels=arguments.labels,
        method=arguments.method,
        tile=arguments.tile,
        workers=workers,
        gap=result.gap,
        iterations=result.iterations,
        seconds=seconds,
        cpu=cpu() - used,
        peak_gb=peak,
        megapixels_per_second=arguments.side**2 / 1e6 / seconds,
    )


def cluster(workers: int) -> Any:
    """Return a client of some worker processes, or None.

    They keep memory as other processes do; by default Dask's give it back at every release.
    """
    if not workers:
        return nullcontext()
    import dask
    import distributed

    kept = {"MALLOC_TRIM_THRESHOLD_": 1 << 27, "MALLOC_MMAP_THRESHOLD_": 1 << 25}
    environment = {f"distributed.nanny.pre-spawn-environ.{key}": kept[key] for key in kept}
    with dask.config.set(environment):
        local = distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            memory_limit=0,
        )
    return distributed.Client(local)


def cpu() -> float:
    """Return the seconds of processor time of this process and its children, alive or not."""
    import psutil

    alive = 0.0
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            alive += sum(child.cpu_times()[:2])
    return sum(os.times()[:4]) + alive


class Peak:
    """The most memory that this process and its children occupy together, in gigabytes."""

    def __enter__(self) -> Peak:
        self.gigabytes, self._end = 0.0, threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def _watch(self) -> None:
        import psutil

        own = psutil.Process()
        while not self._end.wait(1.0):
            total = 0
            for process in (own, *own.children(recursive=True)):
                with suppress(psutil.Error):  # without files that are mapped: the system's cache
                    held = process.memory_info()
                    total += held.rss - held.shared
            self.gigabytes = max(self.gigabytes, total / 1e9)

    def __exit__(self, *_: object) -> None:
        self._end.set()


def line(**figures: Any) -> None:
    """Print figures at once: a run may be cut."""
    plain = {k: float(f"{v:.7g}") if isinstance(v, float) else v for k, v in figures.items()}
    print(json.dumps(plain), flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large", description=__doc__)
    parser.add_argument("what", choices=("exact", "same", "run"))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=SHARED / "msrc")
    parser.add_argument("--side", type=int, default=1440)
    parser.add_argument("--labels", type=int, default=5)
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--gap", type=float, default=1e-3)
    parser.add_argument("--reference", type=float, nargs="*", default=(), help="further gaps")
    parser.add_argument("--tile", type=int, default=2048)
    parser.add_argument("--tiles", type=int, nargs="+", default=(256, 512, 1024))
    parser.add_argument("--method", default="lp")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--inner", type=int, default=8)
    parser.add_argument("--memory", action="store_true")
    arguments = parser.parse_args()
    {"exact": same, "same": same, "run": run}[arguments.what](
        arguments.folder, arguments.data, arguments
    )


if __name__ == "__main__":
    main()
