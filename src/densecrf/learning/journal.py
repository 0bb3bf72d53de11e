"""Answers of the oracle on disk, so that learning goes on where it was interrupted."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf.learning.energy_features import EnergyFeatures
from densecrf.learning.stage import Plane, Stage

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    import numpy.typing as npt

    from densecrf.learning.cutting_planes import Vector
    from densecrf.learning.oracle import Oracle, Task

__all__ = ["Journal", "digest"]


class Journal:
    """A file with one line for each answer of the oracle, by a digest of the question.

    Learning is deterministic, so a second run asks the same questions in the same order and gets
    the answers of the first at once. A line cut short by a kill is left out.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._answers: dict[str, Any] = {}
        if self.path.is_file():
            for line in self.path.read_text("utf-8").splitlines():
                try:
                    key, answer = json.loads(line)
                except ValueError:
                    continue
                self._answers[key] = answer

    def __len__(self) -> int:
        """Return the number of answers."""
        return len(self._answers)

    def around(self, oracle: Oracle) -> _Journaled:
        """Return the oracle, asked only what the file does not answer."""
        return _Journaled(oracle, self)

    def answer(self, question: str, work: Callable[[], Any]) -> Any:
        """Return what the file answers, or do the work and keep its answer, plain JSON values."""
        if question in self._answers:
            return self._answers[question]
        found = work()
        with self._lock:
            self._answers[question] = found
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n" + json.dumps([question, found]))  # whatever the last line is
        return found


def digest(about: Any, *arrays: npt.NDArray[Any]) -> str:
    """Return a question's name: a digest of plain values and arrays."""
    question = hashlib.sha256(json.dumps(about).encode())
    for array in arrays:
        question.update(np.ascontiguousarray(array).tobytes())
    return question.hexdigest()


@dataclass(frozen=True)
class _Journaled:
    oracle: Oracle
    journal: Journal

    @property
    def class_weights(self) -> Vector:
        """The loss of a wrong pixel, by its true label."""
        return self.oracle.class_weights

    @property
    def stop(self) -> threading.Event:
        """Set to end learning."""
        return self.oracle.stop

    def separate(
        self,
        task: Task,
        init: npt.NDArray[np.int64] | None,
        stage: Stage,
        theta: Vector,
        gap: float,
    ) -> tuple[Plane, npt.NDArray[np.int64]]:
        """Return the oracle's plane and labelling, from the file where they are there."""
        question = digest(
            [stage.learned, stage.scale, repr(stage.model), gap],
            *task.example.load(),
            task.filled,
            task.example.truth,
            task.shares,
            theta,
            np.zeros(0) if init is None else init,
            self.class_weights,
        )

        def work() -> list[Any]:
            plane, labels = self.oracle.separate(task, init, stage, theta, gap)
            found = plane.features
            areas, cuts = found.areas.tolist(), found.cuts.tolist()
            packed = base64.b64encode(zlib.compress(labels.astype(np.uint16).tobytes())).decode()
            return [plane.wrong.tolist(), found.unary, areas, cuts, plane.hinge, packed]

        wrong, unary, areas, cuts, hinge, packed = self.journal.answer(question, work)
        features = EnergyFeatures(unary, np.array(areas), np.array(cuts))
        labels = np.frombuffer(zlib.decompress(base64.b64decode(packed)), np.uint16)
        shaped = labels.reshape(task.filled.shape).astype(np.int64)
        return Plane(np.array(wrong), features, hinge), shaped
