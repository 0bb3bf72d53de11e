"""An image with scores, and the unaries that they mean."""

from __future__ import annotations

import numpy as np

from densecrf.refinement import build

H, W, L = 12, 17, 4
RNG = np.random.default_rng(1)
IMAGE = RNG.integers(0, 256, (H, W, 3), dtype=np.uint8)
LOGITS = RNG.normal(0, 2, (L, H, W))
P = np.exp(LOGITS) / np.exp(LOGITS).sum(0)
HARD = P.argmax(0)
UNARY = build(IMAGE, P).unary


def unary(*args, **options):
    return build(*args, **options).unary
