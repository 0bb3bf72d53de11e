"""Tiles and images on a Dask cluster of this machine: what the scheduler costs, and holds.

``python -m benchmarks.large_cluster overhead`` runs 5,000 small tiles on two workers;
``workers`` compares one worker process with two on one mosaic;
``many`` refines 100,000 images of 64 × 64 pixels and looks at the scheduler's memory.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import densecrf
from benchmarks.harness import SHARED
from benchmarks.large import MODEL, cluster, cpu, line, mosaic
from densecrf.model.parameters import Parameters

if TYPE_CHECKING:
    from collections.abc import Iterator

SMALL = Parameters(1, 3, 2, 13, 10)  # a reach of 8 pixels, for small tiles


def overhead(arguments: Any) -> None:
    """Run many small tiles; print which part of the workers' time no task used."""
    import distributed

    side = 64 * arguments.rows
    data = _mosaic(arguments, side, 2)
    with cluster(arguments.workers) as client, distributed.get_task_stream(client) as tasks:
        started, used, own = time.time(), cpu(), time.process_time()
        result = densecrf.large.refine(
            data / "image.npy",
            data / "p.npy",
            out=data / "labels.npy",
            tile=64,
            model=SMALL,
            method="mf5",
            client=client,
        )
        seconds, total, scheduling = time.time() - started, cpu() - used, time.process_time() - own
    spans = [
        (each["start"], each["stop"])
        for task in tasks.data
        for each in task["startstops"]
        if each["action"] == "compute"
    ]
    computing = sum(stop - start for start, stop in spans)
    last = max(stop for _, stop in spans)  # then the client writes the labels
    line(
        what="overhead",
        tiles=len(result.tiles),
        tasks=len(spans),
        workers=arguments.workers,
        seconds=seconds,
        writing=started + seconds - last,
        computing=computing,
        idle=1 - computing / (arguments.workers * (last - started)),
        cpu=total,
        scheduler_and_client_cpu=scheduling,
    )


def workers(arguments: Any) -> None:
    """Solve a mosaic with one worker and with two."""
    data = _mosaic(arguments, arguments.side, 5)
    for count in arguments.counts:
        with cluster(count) as client:
            started, used = time.time(), cpu()
            result = densecrf.large.refine(
                data / "image.npy",
                data / "p.npy",
                out=data / "labels.npy",
                tile=arguments.tile,
                model=MODEL,
                axis=0,
                gap=1e-6,
                max_iterations=arguments.iterations,
                client=client,
            )
            seconds = time.time() - started
            line(
                what="workers",
                workers=count,
                seconds=seconds,
                cpu=cpu() - used,
                energy=result.energy,
                bound=result.lower_bound,
            )


def many(arguments: Any) -> None:
    """Refine many small images; print the scheduler's memory on the way."""
    known = _crops(arguments.crops)
    counts = {10**k * m for k in range(2, 6) for m in (1, 3)} | {arguments.images}
    with _scheduler(arguments) as (client, scheduler):
        pairs = itertools.islice(itertools.cycle(known), arguments.images)
        images, probabilities = itertools.tee(pairs)
        started, failures = time.time(), 0
        found = densecrf.refine_many(
            (image for image, _ in images),
            (p for _, p in probabilities),
            client=client,
            batch=100,
            method="mf5",
            axis=0,
            threads=1,
            model=Parameters(3, 0, 15, 13, 0),
        )
        for number, result in enumerate(found, 1):
            failures += not result
            if number in counts:
                line(
                    what="many",
                    images=number,
                    failures=failures,
                    scheduler_mb=scheduler.memory_info().rss / 1e6,
                    scheduler_cpu=sum(scheduler.cpu_times()[:2]),
                    seconds=time.time() - started,
                )


def _crops(data: Path) -> list[tuple[Any, Any]]:
    """Return 320 pieces of photographs, and how bright they are as probabilities."""
    from PIL import Image

    found = []
    for path in sorted((data / "images").glob("*.png"))[:40]:
        with Image.open(path) as opened:
            image = np.asarray(opened.convert("RGB"))
        for top, left in itertools.product(range(0, 128, 64), range(0, 256, 64)):
            crop = np.ascontiguousarray(image[top : top + 64, left : left + 64])
            bright = 0.1 + 0.8 * crop.mean(-1, dtype=np.float32) / 255
            found.append((crop, np.stack([1 - bright, bright])))
    return found


@contextmanager
def _scheduler(arguments: Any) -> Iterator[tuple[Any, Any]]:
    """Start a scheduler of its own process, and workers; yield a client and the process."""
    import subprocess
    import sys

    import distributed
    import psutil

    file = arguments.folder / f"scheduler-{os.getpid()}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m"]
    common = ["--dashboard-address", ":0", "--scheduler-file", str(file)]
    names = ["scheduler", *["worker"] * arguments.workers]
    more = {"scheduler": ["--port", "0"], "worker": ["--nthreads", "1", "--no-nanny"]}
    started = [
        subprocess.Popen([*command, f"distributed.cli.dask_{name}", *more[name], *common])
        for name in names
    ]
    try:
        with distributed.Client(scheduler_file=str(file), timeout=60) as client:
            client.wait_for_workers(arguments.workers)
            yield client, psutil.Process(started[0].pid)
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def _mosaic(arguments: Any, side: int, labels: int) -> Path:
    folder: Path = arguments.folder / f"{side}-{labels}"
    if not (folder / "image.npy").exists():
        mosaic(folder, arguments.data, (side, side), labels)
    return folder


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_cluster", description=__doc__)
    parser.add_argument("what", choices=("overhead", "workers", "many"))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=SHARED / "camvid")
    parser.add_argument("--crops", type=Path, default=SHARED / "msrc")
    parser.add_argument("--rows", type=int, default=71, help="of tiles: 71 × 71 are 5,041")
    parser.add_argument("--side", type=int, default=2048)
    parser.add_argument("--tile", type=int, default=512)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--counts", type=int, nargs="+", default=(1, 2))
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    {"overhead": overhead, "workers": workers, "many": many}[arguments.what](arguments)


if __name__ == "__main__":
    main()
