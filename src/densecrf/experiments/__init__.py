"""Former place of `densecrf.metrics`; the experiments themselves are not part of the package."""
