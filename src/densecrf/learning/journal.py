"""Answers of the oracle on disk, so that learning goes on where it was interrupted."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf.learning.energy_features import EnergyFeatures
from densecrf.learning.large_margin import Oracle, Plane, Stage

if TYPE_CHECKING:
    import os

    import numpy.typing as npt

    from densecrf.learning.cutting_planes import Vector
    from densecrf.learning.examples import Example

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

    def find(self, key: str) -> Plane | None:
        """Return an answer that the file holds."""
        if key not in self._answers:
            return None
        loss, unary, cuts, hinge = self._answers[key]
        return Plane(loss, EnergyFeatures(unary, np.array(cuts)), hinge)

    def keep(self, key: str, plane: Plane) -> None:
        """Append an answer."""
        features = plane.features
        answer = [plane.loss, features.unary, features.cuts.tolist(), plane.hinge]
        with self._lock:
            self._answers[key] = answer
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n" + json.dumps([key, answer]))  # whatever the last line is


@dataclass(frozen=True)
class _Journaled:
    oracle: Oracle
    journal: Journal

    def separate(
        self,
        example: Example,
        filled: npt.NDArray[np.int64],
        stage: Stage,
        theta: Vector,
        gap: float,
    ) -> Plane:
        """Return the oracle's plane, from the file where it is there."""
        unary, image = example.load()
        question = hashlib.sha256(json.dumps([stage.learned, repr(stage.model), gap]).encode())
        for array in (unary, image, filled, example.truth, theta, self.oracle.class_weights):
            question.update(np.ascontiguousarray(array).tobytes())
        key = question.hexdigest()
        plane = self.journal.find(key)
        if plane is None:
            plane = self.oracle.separate(example, filled, stage, theta, gap)
            self.journal.keep(key, plane)
        return plane
