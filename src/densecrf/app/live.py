"""Solve while the user draws: a preview, then the certified answer; the newest stroke wins."""

import atexit
import json
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.app import full_size
from densecrf.app.energy import Energies, Snapshot
from densecrf.app.unsure import unsure_regions
from densecrf.model.crf import DenseCRF
from densecrf.solvers.islands import relabelled, without_islands
from densecrf.solvers.result import Result

__all__ = ["Live", "frame"]

#: Fewer roundings than by default: warm starts are near the end, and each costs filter calls.
ROUND_EVERY = 8
#: Gaps afterwards, while nothing new is drawn: most pixels are then proven singly.
DEEPER = (1e-4, 1e-5, 0.0)
LONGEST = 60.0  # seconds for all of that
PAUSE = 1.5  # seconds without a stroke before it begins: it would hold up the next preview
LABELS_EVERY = 0.15  # seconds between label maps that stream in
NUMBERS_EVERY = 0.04  # and between numbers

Emit = Callable[[dict[str, Any] | bytes], None]


class Superseded(Exception):  # noqa: N818 - it is no error
    """Raised in a solve whose snapshot is no longer the newest."""


def frame(head: dict[str, Any], *planes: npt.NDArray[Any]) -> bytes:
    """Return a binary message: the length of the JSON, the JSON, and compressed label planes."""
    text = json.dumps(head).encode()
    packed = zlib.compress(b"".join(plane.tobytes() for plane in planes), 1)
    return len(text).to_bytes(4, "little") + text + packed


class Live:
    """The solver of one document, in a thread of its own that ends when `close` is called.

    `emit` takes messages for the page, from any thread.
    """

    def __init__(self, energies: Energies, emit: Emit) -> None:
        self.energies, self.emit = energies, emit
        self.result: tuple[int, Result, list[int]] | None = None
        self._changed = threading.Condition()
        self._wanted: Snapshot | None = None
        self._closed = False
        self._warm: dict[int, npt.NDArray[np.float32]] = {}
        self._best: Result | None = None  # of the revision on screen: nothing worse follows it
        self._thread = threading.Thread(target=self._run, name="densecrf-live", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # a thread that is in native code cannot outlive Python

    def ask(self, snapshot: Snapshot) -> None:
        """Solve this next, and abandon the present solve."""
        with self._changed:
            self._wanted = snapshot
            self._changed.notify()

    def close(self) -> None:
        """End the thread."""
        atexit.unregister(self.close)
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout=10)

    def labels(self) -> tuple[int, npt.NDArray[np.uint8]] | None:
        """Return the last certified labelling, and the revision that it belongs to."""
        if self.result is None:
            return None
        revision, result, labels = self.result
        return revision, np.asarray(labels, np.uint8)[result.labels]

    def settled(self, snapshot: Snapshot, energies: Energies, labels: list[int]) -> Result:
        """Return the answer from the strokes alone, without a warm start: it can be repeated.

        The energies are these, or those of the image at full size; `labels` are those that the
        page knows. ValueError says that there is nothing to solve yet.
        """
        crf = energies.reproducible(snapshot)
        blocks = full_size.side_of_blocks(crf.shape)
        result = full_size.solve(crf, blocks, snapshot.min_area)
        if energies is self.energies:
            self._show(snapshot, "certified", result, labels, time.perf_counter())
        return result

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._wanted is not None)
                if self._closed:
                    return
                snapshot, self._wanted = self._wanted, None
            assert snapshot is not None
            try:
                with suppress(Superseded):
                    self._answer(snapshot)
            except (ValueError, MemoryError) as error:
                self._say(snapshot, str(error) or "out of memory")
            except Exception as error:  # the thread must live on
                self._say(snapshot, f"internal error, please report it: {error!r}")

    def _say(self, snapshot: Snapshot, text: str) -> None:
        told = {"level": "error", "text": text, "revision": snapshot.revision}
        self.emit({"type": "message", **told})

    def _check(self) -> None:
        if self._wanted is not None or self._closed:
            raise Superseded

    def _answer(self, snapshot: Snapshot) -> None:
        started = time.perf_counter()
        if len(self.energies.labels(snapshot)) < 2:
            self.emit({"type": "waiting", "revision": snapshot.revision})
            return
        crf, labels = self.energies.problem(snapshot)
        self._check()
        preview = crf.solve("mf5")
        self._best = without_islands(preview, snapshot.min_area)
        self._show(snapshot, "preview", self._best, labels, started)
        self._check()
        constant = preview.best_constant[1] < preview.energy
        init = self._warm_start(labels, crf.shape)
        if init is None and not constant:
            init = preview.marginals
        follow = _Follow(self, snapshot, labels, started, self._best.energy)
        result = crf.solve(
            "lp", init=init, gap=full_size.GAP, callback=follow, round_every=ROUND_EVERY
        )
        self._keep_warm(labels, result.marginals)
        self._show(snapshot, "certified", self._no_worse(result, snapshot), labels, started)
        self._check()
        told = {"revision": snapshot.revision, "regions": unsure_regions(result.confidence)}
        self.emit({"type": "unsure", **told})
        self._check()
        if snapshot.settings.compare:
            compared = crf.solve("mf", time_limit=20, callback=lambda _: self._check())
            self._show(snapshot, "meanfield", compared, labels, started)
        self._deepen(snapshot, crf, result, labels, started)

    def _deepen(
        self, snapshot: Snapshot, crf: DenseCRF, result: Result, labels: list[int], started: float
    ) -> None:
        """Close the gap further, until the user draws or the answer is optimal."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._wanted is not None, PAUSE)
        self._check()
        self.emit({"type": "rest", "revision": snapshot.revision})
        deadline = time.perf_counter() + LONGEST
        for gap in DEEPER:
            left = deadline - time.perf_counter()
            if result.optimal or left <= 0:
                return
            result = crf.solve(
                "lp",
                init=result.marginals,
                gap=gap,
                time_limit=left,
                callback=lambda _: self._check(),
            )
            self._keep_warm(labels, result.marginals)
            self._show(snapshot, "certified", self._no_worse(result, snapshot), labels, started)

    def _no_worse(self, result: Result, snapshot: Snapshot) -> Result:
        """Return a result without islands, and with the best labels so far where its own are worse.

        It then has their energy, and the bound that was proven.
        """
        result, best = without_islands(result, snapshot.min_area), self._best
        if best is not None and best.energy < result.energy:
            result = relabelled(replace(result, info=best.info), best.labels, best.energy)
        self._best = result
        return result

    def _warm_start(
        self, labels: list[int], shape: tuple[int, ...]
    ) -> npt.NDArray[np.float32] | None:
        """Return the last marginals, with zeros for labels that are new."""
        if not self._warm or not set(self._warm) <= set(labels):
            return None
        zeros = np.zeros(shape, np.float32)
        return np.stack([self._warm.get(label, zeros) for label in labels])

    def _keep_warm(self, labels: list[int], marginals: npt.NDArray[np.float32]) -> None:
        shape = self.energies.picture.shape
        self._warm = dict(zip(labels, np.array(marginals).reshape(-1, *shape), strict=True))

    def _show(
        self, snapshot: Snapshot, stage: str, result: Result, labels: list[int], started: float
    ) -> None:
        """Send a label map with its numbers, and the pixels that are proven where that is known."""
        names, proven = np.asarray(labels, np.uint8), None
        planes = [names[result.labels]]
        if stage == "certified":
            self.result = snapshot.revision, result, labels
            proven = result.proven
            planes.append(np.asarray(proven, np.uint8))
        head = {
            **_numbers("answer", snapshot, result, started),
            "stage": stage,
            "method": result.method,
            "planes": len(planes),
            "labels": len(labels),
            "proven": None if proven is None else float(np.mean(proven)),
            "optimal": result.optimal,
            "islands": result.info.get("islands", 0.0),
            "alone": bool((result.labels == result.labels.flat[0]).all()),
        }
        self.emit(frame(head, *planes))


class _Follow:
    """The callback of the certified solve: streams numbers and label maps, and gives way.

    Labels with a larger energy than that of the preview, which is on screen, are not sent: a warm
    start knows nothing of a new label at first.
    """

    def __init__(
        self, live: Live, snapshot: Snapshot, labels: list[int], started: float, shown: float
    ) -> None:
        self.live, self.snapshot, self.labels, self.started = live, snapshot, labels, started
        self._shown = shown
        self._numbers_at = self._labels_at = 0.0
        self._sent: Any = None

    def __call__(self, outcome: Any) -> bool:
        if self.live._wanted is not None or self.live._closed:
            self.live._keep_warm(self.labels, outcome.y)
            raise Superseded
        if outcome.energy > self._shown:
            return False
        now = time.perf_counter()
        if now - self._numbers_at >= NUMBERS_EVERY:
            self._numbers_at = now
            self.live.emit(_numbers("progress", self.snapshot, outcome, self.started))
        whole = self.snapshot.min_area == 0  # islands go at the end
        if whole and now - self._labels_at >= LABELS_EVERY and outcome.labels is not self._sent:
            self._labels_at, self._sent = now, outcome.labels
            head = _numbers("answer", self.snapshot, outcome, self.started)
            labels = np.asarray(self.labels, np.uint8)[np.asarray(outcome.labels)]
            self.live.emit(frame({**head, "stage": "streaming", "planes": 1}, labels))
        return False


def _numbers(kind: str, snapshot: Snapshot, found: Any, started: float) -> dict[str, Any]:
    """Return the head of a message about a result, or about one under way."""
    return {
        "type": kind,
        "revision": snapshot.revision,
        "energy": found.energy if np.isfinite(found.energy) else None,
        "bound": found.lower_bound,
        "gap": found.gap,
        "iteration": found.iterations,
        "seconds": time.perf_counter() - started,
    }
