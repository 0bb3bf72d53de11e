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

    import numpy.typing as npt

    from densecrf.learning.cutting_planes import Vector
    from densecrf.learning.oracle import Oracle, Task

__all__ = ["Journal"]


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

    def find(self, key: str) -> tuple[Plane, npt.NDArray[np.int64]] | None:
        """Return an answer that the file holds."""
        if key not in self._answers:
            return None
        wrong, unary, areas, cuts, hinge, shape, labels = self._answers[key]
        features = EnergyFeatures(unary, np.array(areas), np.array(cuts))
        stored = np.frombuffer(zlib.decompress(base64.b64decode(labels)), np.uint16)
        return Plane(np.array(wrong), features, hinge), stored.reshape(shape).astype(np.int64)

    def keep(self, key: str, plane: Plane, labels: npt.NDArray[np.int64]) -> None:
        """Append an answer."""
        features = plane.features
        packed = base64.b64encode(zlib.compress(labels.astype(np.uint16).tobytes())).decode()
        answer = [
            plane.wrong.tolist(),
            features.unary,
            features.areas.tolist(),
            features.cuts.tolist(),
            plane.hinge,
            labels.shape,
            packed,
        ]
        with self._lock:
            self._answers[key] = answer
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n" + json.dumps([key, answer]))  # whatever the last line is


@dataclass(frozen=True)
class _Journaled:
    oracle: Oracle
    journal: Journal

    @property
    def class_weights(self) -> Vector:
        """The loss of a wrong pixel, by its true label."""
        return self.oracle.class_weights

    def separate(
        self,
        task: Task,
        init: npt.NDArray[np.int64] | None,
        stage: Stage,
        theta: Vector,
        gap: float,
    ) -> tuple[Plane, npt.NDArray[np.int64]]:
        """Return the oracle's plane and labelling, from the file where they are there."""
        unary, image = task.example.load()
        question = hashlib.sha256(
            json.dumps([stage.learned, stage.scale, repr(stage.model), gap]).encode()
        )
        start = np.zeros(0) if init is None else init
        for array in (unary, image, task.filled, task.example.truth, task.shares, theta, start):
            question.update(np.ascontiguousarray(array).tobytes())
        question.update(self.class_weights.tobytes())
        key = question.hexdigest()
        known = self.journal.find(key)
        if known is None:
            known = self.oracle.separate(task, init, stage, theta, gap)
            self.journal.keep(key, *known)
        return known
