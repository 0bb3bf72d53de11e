"""An oracle whose answers are records, so that learning goes on where it was interrupted.

Learning is deterministic: a second run asks the same questions in the same order, and gets the
answers of the first at once.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf import __version__
from densecrf.learning.energy_features import EnergyFeatures
from densecrf.learning.stage import Plane, Stage
from densecrf.records import digest

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    import numpy.typing as npt

    from densecrf.learning.cutting_planes import Vector
    from densecrf.learning.oracle import Oracle, Task
    from densecrf.records import RecordStore

__all__ = ["Journaled", "answer"]


def answer(journal: RecordStore | None, question: str, work: Callable[[], Any]) -> Any:
    """Return the journal's answer, or do the work and keep its answer, plain JSON values."""
    if journal is None:
        return work()
    return journal.recall((question[:2], question), {"version": __version__}, work)


@dataclass(frozen=True)
class Journaled:
    """The oracle, asked only what the journal does not answer."""

    oracle: Oracle
    journal: RecordStore

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
        """Return the oracle's plane and labelling, from the journal where they are there."""
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

        wrong, unary, areas, cuts, hinge, packed = answer(self.journal, question, work)
        features = EnergyFeatures(unary, np.array(areas), np.array(cuts))
        labels = np.frombuffer(zlib.decompress(base64.b64decode(packed)), np.uint16)
        shaped = labels.reshape(task.filled.shape).astype(np.int64)
        return Plane(np.array(wrong), features, hinge), shaped
