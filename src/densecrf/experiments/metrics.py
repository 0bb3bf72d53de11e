"""Former place of `densecrf.metrics`, until the next release."""

import warnings
from typing import Any

from densecrf import metrics


def __getattr__(name: str) -> Any:
    """Return a name of `densecrf.metrics` with a warning."""
    if name not in metrics.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        f"densecrf.experiments.metrics.{name} is now densecrf.metrics.{name}; the old name will be "
        "removed in the next release",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(metrics, name)
