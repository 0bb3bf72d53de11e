"""What a run records of one method on one image."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["Outcome"]


@dataclass(frozen=True)
class Outcome:
    """One method on one image."""

    method: str
    image: str
    energy: float  # of the final labelling, the one that the protocol reports
    seconds: float
    lower_bound: float | None = None  # where the method and the protocol have a certificate
    gap: float | None = None
    confusion: NDArray[np.int64] | None = None  # (L, L): true class, predicted class
    details: Mapping[str, Any] = field(default_factory=dict)  # further values, as JSON

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a JSON record."""
        confusion = None if self.confusion is None else self.confusion.tolist()
        return {**vars(self), "confusion": confusion, "details": dict(self.details)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Outcome:
        """Rebuild an outcome from its record."""
        confusion = values["confusion"]
        counts = None if confusion is None else np.array(confusion, np.int64)
        return cls(**{**values, "confusion": counts})
