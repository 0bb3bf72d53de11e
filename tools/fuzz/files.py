"""The command line on hostile files: damaged, mismatched, empty, or not what their names say."""

from __future__ import annotations

import io
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from formats import damaged
from problems import pick

HAVE_COMMAND_LINE = all(find_spec(name) is not None for name in ("typer", "rich", "PIL"))
EXITS = (0, 1, 2)


def _npy(array: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def _image(rng: np.random.Generator) -> bytes:
    from PIL import Image

    shape = pick(rng, ((8, 9, 3), (8, 9), (8, 9, 4), (1, 1, 3), (5, 9, 3)))
    buffer = io.BytesIO()
    values = (rng.random(shape) * 255).astype(np.uint8)
    Image.fromarray(values).save(buffer, "PNG")
    return buffer.getvalue()


def _scores(rng: np.random.Generator) -> bytes:
    scores = rng.random(pick(rng, ((3, 8, 9), (8, 9, 3), (3, 4, 4), (1, 8, 9), (8, 9), (3, 9, 8))))
    scores = pick(rng, (scores, scores * 1e300, scores - 2, scores / scores.sum(0), scores * np.nan,
                        (scores * 5).astype(np.int64), scores.astype(object)))  # fmt: skip
    return _npy(scores)


def _labels(rng: np.random.Generator) -> bytes:
    labels = rng.integers(0, 3, (8, 9))
    return _npy(pick(rng, (labels, labels - 1, labels * 2**61, labels + 0.5, labels.T, labels[:0])))


def run_command(rng: np.random.Generator) -> list[str]:
    """Run one command on files drawn from the seed; return what is wrong with how it ends."""
    from typer.testing import CliRunner

    from densecrf.cli.app import app

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        image = root / f"photo.{pick(rng, ('png', 'jpg', 'tif', 'png'))}"
        probs = root / f"photo.{pick(rng, ('npy', 'npy', 'npz', 'unary'))}"
        labels = root / f"labels.{pick(rng, ('npy', 'png'))}"
        given = {image: _image(rng), probs: _scores(rng), labels: _labels(rng)}
        for path in [path for path in given if rng.random() < 0.5]:
            given[path] = damaged(rng, given[path])
        for path, data in given.items():
            path.write_bytes(data)
        commands = (
            ("segment", image, "--probs", probs, "--out", root / "out"),
            ("segment", image, "--labels", labels, "--n-labels", "3", "--out", root / "out"),
            ("certify", image, "--probs", probs, "--labels", labels),
            ("segment", image, "--probs", probs, "--out", image),
            ("segment", image, "--probs", probs, "--tile", "64", "--out", root / "tiled.npy"),
            ("segment", image, "--labels", labels, "--tile", "64", "--out", root / "tiled.npy"),
            ("compare", image, "--probs", probs, "--methods", "unary,mf5"),
            ("certify", image, "--probs", probs, "--verify", probs),
        )
        arguments = [str(each) for each in pick(rng, commands)]
        ended = CliRunner().invoke(app, arguments)
        words = f"{arguments}: exit {ended.exit_code}: {ended.output[-300:]}"
        if ended.exception is not None and not isinstance(ended.exception, SystemExit):
            return [f"{type(ended.exception).__name__}: {ended.exception}: {words}"]
        if ended.exit_code not in EXITS or "Traceback" in ended.output:
            return [words]
        if any(path.read_bytes() != data for path, data in given.items()):
            return [f"an input was changed: {words}"]
    return []
