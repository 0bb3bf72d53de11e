"""Fuzz the library: calls drawn from seeds, in child processes with a time limit.

A finding is a crash, a hang, an error other than a ValueError (or a TypeError that names the
argument), a bound above an energy or above the optimum, an energy that does not repeat, marginals
off the simplex, an input that changes, bits that depend on the number of threads, a file that is
read with other numbers than it was written, marginals that are not pydensecrf's, tiles that
contradict memory, a changed certificate that is believed. Every case has a seed, and is the same
wherever it runs:

    python tools/fuzz --n 100000 --jobs 16
    python tools/fuzz --seed 4711 --n 1
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections import Counter
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[2] / "src"
if find_spec("densecrf") is None:  # a checkout that is not installed
    sys.path.insert(0, str(SOURCE))

from cases import work  # noqa: E402

HANG = 60.0  # seconds
READY = 300.0  # seconds in which a child imports everything
SHOWN = 40
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Supervisor:
    """Hands seeds to child processes, one at a time, and outlives them."""

    def __init__(self, first: int, count: int, seconds: float) -> None:
        self._seeds = iter(range(first, first + count))
        self._lock = threading.Lock()
        self._late = time.monotonic() + seconds
        self.done: Counter[str] = Counter()
        self.findings: list[str] = []

    def _next(self) -> int | None:
        with self._lock:
            return None if time.monotonic() > self._late else next(self._seeds, None)

    def _note(self, seed: int, counts: dict[str, int], found: list[str]) -> None:
        with self._lock:
            self.done.update(counts)
            self.done["cases"] += 1
            for text in found:
                self.findings.append(f"seed {seed}: {text}")
                if len(self.findings) <= SHOWN:
                    print(self.findings[-1], flush=True)
            if self.done["cases"] % 1000 == 0:
                print(f"{self.done['cases']} cases", flush=True)

    def serve(self) -> None:
        """Keep one child busy, and replace it where it dies or hangs."""
        context = get_context("spawn")
        child: Any = None
        ready = False
        while (seed := self._next()) is not None:
            if child is None:
                ours, theirs = context.Pipe()
                child = context.Process(target=work, args=(theirs,), daemon=True)
                child.start()
                ready = False
                theirs.close()
            try:
                if not ready:
                    if not ours.poll(READY):
                        raise TimeoutError
                    ready = ours.recv() == "ready"
                ours.send(seed)
                if ours.poll(HANG):
                    self._note(seed, *ours.recv())
                    continue
                found = f"hangs: no answer after {HANG:g} s"
            except (EOFError, OSError):
                child.join(5)
                found = f"crashes: exit status {child.exitcode}"
            child.kill()
            child.join()
            child = None
            self._note(seed, {}, [found])
        if child is not None:
            ours.send(None)
            child.join(10)
            child.kill()


def main() -> int:
    """Run the cases; 1 where there are findings."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--n", type=int, default=1000, help="number of cases")
    parser.add_argument("--seed", type=int, default=0, help="the first case's seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="child processes")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no case after these")
    given = parser.parse_args()
    for name in ONE_THREAD:
        os.environ.setdefault(name, "1")
    started = time.monotonic()
    supervisor = Supervisor(given.seed, given.n, given.seconds)
    threads = [threading.Thread(target=supervisor.serve) for _ in range(min(given.jobs, given.n))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = ", ".join(f"{count} {name}" for name, count in sorted(supervisor.done.items()))
    print(f"{counts}; {len(supervisor.findings)} findings; {time.monotonic() - started:.0f} s, "
          f"seeds from {given.seed}")  # fmt: skip
    return 1 if supervisor.findings or not supervisor.done["cases"] else 0


if __name__ == "__main__":
    sys.exit(main())
