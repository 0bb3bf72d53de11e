"""The command line, called in this process, and small images to call it with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from typer.testing import CliRunner

from densecrf.cli.app import app
from densecrf.io import write_image

if TYPE_CHECKING:
    from pathlib import Path

H, W, L = 24, 32, 3
TRUTH = np.repeat([0, 1, 2], [10, 12, 10])[None].repeat(H, 0)
COLORS = np.array([(30, 30, 30), (200, 40, 40), (60, 90, 220)], np.uint8)


def probabilities(seed: int) -> np.ndarray:
    """Return noisy probabilities of the truth, (L, H, W)."""
    rng = np.random.default_rng(seed)
    logits = 2.0 * (np.arange(L)[:, None, None] == TRUTH) + rng.normal(0, 0.7, (L, H, W))
    return (np.exp(logits) / np.exp(logits).sum(0)).astype(np.float32)


def write_examples(folder: Path, names: str = "abc") -> None:
    """Write images with probabilities, as a user has them."""
    (folder / "images").mkdir()
    (folder / "probs").mkdir()
    for seed, name in enumerate(names):
        write_image(folder / "images" / f"{name}.png", COLORS[TRUTH])
        np.save(folder / "probs" / f"{name}.npy", probabilities(seed))


def densecrf(*arguments: object):
    """Run a command."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def said(result) -> str:
    """Return all that was printed, in one line of single spaces without the frames."""
    return " ".join((result.stdout + result.stderr).replace("│", " ").split())
