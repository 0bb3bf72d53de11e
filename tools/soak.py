"""Run for long: memory, descriptors and threads stay flat; a killed batch goes on where it was.

python tools/soak.py --solves 10000 --kills 50
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import densecrf

GROWTH = 16 << 20  # bytes that the process may grow by after the first tenth
TIMES = ("seconds", "trace")  # what differs from run to run


def footprint() -> dict[str, int]:
    """Return the process's resident bytes, open descriptors and threads."""
    gc.collect()
    status = Path("/proc/self/status").read_text().split()
    return {
        "bytes": 1024 * int(status[status.index("VmRSS:") + 1]),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": int(status[status.index("Threads:") + 1]),
        "python threads": threading.active_count(),
    }


def solve_often(count: int) -> list[str]:
    """Solve models of all methods again and again; return what grew."""
    rng = np.random.default_rng(0)
    before: dict[str, int] = {}
    for number in range(count):
        shape = (int(rng.integers(5, 40)), int(rng.integers(5, 40)))
        image = rng.random((*shape, 3)) * 255
        kernels = [densecrf.Spatial(2.0, 1.0), densecrf.Bilateral(image, 10.0, 20.0, 2.0)]
        crf = densecrf.DenseCRF(rng.standard_normal((3, *shape)), kernels)
        method = densecrf.METHODS[number % len(densecrf.METHODS)]
        limit = 0.001 if number % 10 == 0 else None  # what a limit ends leaves nothing either
        crf.solve(method, max_iterations=3, time_limit=limit)
        if number == count // 10:
            before = footprint()
        if number % max(1, count // 10) == 0:
            print(f"{number} solves: {footprint()}", flush=True)
    after = footprint()
    print(f"{count} solves: {after}", flush=True)
    allowed = {"bytes": GROWTH}
    return [
        f"{name}: {before[name]} after {count // 10} solves, {after[name]} after {count}"
        for name in after
        if after[name] > before[name] + allowed.get(name, 0)
    ]


def _inputs(folder: Path, count: int) -> None:
    from PIL import Image

    rng = np.random.default_rng(1)
    for name in ("images", "probs"):
        (folder / name).mkdir()
    for number in range(count):
        image = (rng.random((60, 80, 3)) * 255).astype(np.uint8)
        Image.fromarray(image).save(folder / "images" / f"{number:03}.png")
        scores = rng.random((4, 60, 80))
        np.save(folder / "probs" / f"{number:03}.npy", scores / scores.sum(0))


def _contents(folder: Path) -> dict[str, Any]:
    """Return what the files of a batch hold, but for the times it took."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        data = path.read_bytes() if path.is_file() else b""
        if path.suffix == ".json":
            found[path.name] = _timeless(json.loads(data))
        else:
            found[path.name] = data
    return found


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if key not in TIMES}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


def _batch(folder: Path, out: str) -> subprocess.Popen[bytes]:
    run = "from densecrf.cli import main; main()"
    command = [sys.executable, "-c", run, "segment", folder / "images", "--probs", folder / "probs",
               "--out", folder / out, "--quiet", "--marginals",
               "--max-iterations", "10"]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def kill_often(kills: int, images: int) -> list[str]:
    """Kill a batch at random moments and let it go on; return how its files differ."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _inputs(folder, images)
        started = time.monotonic()
        whole = _batch(folder, "out")
        if whole.wait():
            return [f"the batch ends with status {whole.returncode}: {whole.communicate()[1]!r}"]
        (folder / "out").rename(folder / "whole")
        seconds = time.monotonic() - started
        chance = random.Random(0)
        for _ in range(kills):
            batch = _batch(folder, "out")
            try:
                batch.wait(chance.uniform(0.2, 1.0) * seconds)
                for path in (folder / "out").glob("*.json"):
                    path.unlink()  # nothing was left to do: begin anew, over what is there
            except subprocess.TimeoutExpired:
                batch.send_signal(signal.SIGKILL)
                batch.wait()
        last = _batch(folder, "out")
        if last.wait():
            return [f"resumed: status {last.returncode}: {last.communicate()[1]!r}"]
        one, other = _contents(folder / "whole"), _contents(folder / "out")
        differ = sorted(
            path for path in one.keys() | other.keys() if one.get(path) != other.get(path)
        )
        print(f"killed {kills} times: {len(one)} files, {len(differ)} differ", flush=True)
        return [f"{path}: differs after kills" for path in differ]


def main() -> int:
    """Run both; 1 where something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--solves", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--images", type=int, default=12, help="images of the batch")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    found = solve_often(given.solves) + kill_often(given.kills, given.images)
    print("\n".join(found) or "nothing found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
