"""One case: what is drawn from its seed, what is called, what is found."""

from __future__ import annotations

import tempfile
import traceback
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import checks
import numpy as np
from facades import HAVE_ORIGINAL, run_facade
from files import HAVE_COMMAND_LINE, run_command
from formats import HAVE_FORMATS, run_format
from hostile import complaint, draw_hostile
from methods import draw_call
from mutations import run_mutation
from problems import Drawn, draw
from tiled import run_tiled

import densecrf

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

HOSTILE, TINY, TORCH = 0.2, 0.15, 0.05  # shares of the cases
#: Doors beside `solve`, the share of the cases that each has, and whether all is installed for it.
DOORS = {
    "files": (0.08, run_format, HAVE_FORMATS),
    "commands": (0.03, run_command, HAVE_COMMAND_LINE),
    "calls of pydensecrf": (0.06, run_facade, HAVE_ORIGINAL),
    "tiled images": (0.04, run_tiled, True),
    "changed certificates": (0.06, run_mutation, True),
}
COPIED, SAVED = 0.05, 0.05  # of the results
HAVE_TORCH = find_spec("torch") is not None


def work(pipe: Connection) -> None:
    """Answer each seed with what was done and what was found, after a first word when ready."""
    if HAVE_TORCH:  # takes long where many import it at once: not in the time of a case
        import torch

        torch.set_num_threads(1)
    pipe.send("ready")
    while (seed := pipe.recv()) is not None:
        pipe.send(run_case(seed))


def run_case(seed: int) -> tuple[dict[str, int], list[str]]:
    """Run the case of a seed; return counts and findings."""
    rng = np.random.default_rng([seed, 20170])
    kind = rng.random()
    tiny = kind < HOSTILE + TINY
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if kind < HOSTILE:
            return {"hostile calls": 1}, _hostile(rng)
        for name, (share, run, installed) in DOORS.items():
            if (kind := kind + share) > 1 and installed:
                return {name: 1}, run(rng)
        return _solved(rng, tiny=tiny)


def _hostile(rng: np.random.Generator) -> list[str]:
    name, call = draw_hostile(rng)
    try:
        result = call()
    except Exception as error:
        found = complaint(name, error)
        return [found] if found else []
    if isinstance(result, densecrf.Result):
        return [f"{name}: {text}" for text in checks.findings(_model_of(result), result)]
    values = getattr(result, "unary", result)
    if isinstance(values, (np.ndarray, float)) and not np.isfinite(values).all():
        return [f"{name}: returns numbers that are not finite"]
    return []


def _model_of(result: densecrf.Result) -> densecrf.DenseCRF:
    assert result.crf is not None
    return result.crf


def _solved(rng: np.random.Generator, *, tiny: bool) -> tuple[dict[str, int], list[str]]:
    counts = {"solves": 1}
    words: Any = "the model"
    try:
        drawn = draw(rng, tiny=tiny)
        words = drawn.words
        method, keywords = draw_call(rng)
        words = {**drawn.words, "method": method, **keywords}
        found = _judge(rng, drawn, method, keywords, tiny, counts)
    except ValueError as error:
        found = [] if _may_refuse(str(error)) else [f"refused: {error}"]
    except Exception:
        found = [traceback.format_exc(limit=-4)]
    return counts, [f"{text}\n    {words}" for text in found]


def _may_refuse(text: str) -> bool:
    """Return whether a drawn problem, which is valid, may be refused with this message."""
    allowed = (
        "solves the Potts model and tree metrics",
        "works only for Spatial kernels",
        "standard deviations; the limit is",
        "too far from zero for",
        "on NumPy arrays alone",
        "leave the range of float32",
        "beyond that of float32",
    )
    return any(part in text for part in allowed)


def _judge(
    rng: np.random.Generator,
    drawn: Drawn,
    method: str,
    keywords: dict[str, Any],
    tiny: bool,
    counts: dict[str, int],
) -> list[str]:
    crf = drawn.crf
    before = [array.copy() for array in drawn.given]
    torch = HAVE_TORCH and rng.random() < TORCH
    plain = keywords.get("order", "soft") in ("soft", "hard")  # the orders that tensors have
    if torch and plain and crf.filter not in ("grid", "exact") and "inner" not in keywords:
        keywords["device"] = "cpu"
        counts["torch solves"] = 1
    result = crf.solve(method, threads=1, **keywords)
    other = "device" in keywords
    energies = checks.Energies(crf, keywords.get("device"))
    found = list(checks.findings(crf, result, energies))
    if any(not np.array_equal(a, b) for a, b in zip(drawn.given, before, strict=True)):
        found.append("an input was changed")
    if tiny and crf.n_labels**crf.n <= 10_000:
        counts["brute-forced problems"] = 1
        found += checks.against_brute_force(energies, result, checks.every_energy(energies))
    if "time_limit" not in keywords and not other and rng.random() < 0.3:
        counts["solves"] += 1
        again = crf.solve(method, threads=int(rng.integers(2, 5)), **keywords)
        differs = checks.same(result, again)
        if differs:
            found.append(f"{differs}: depends on the number of threads")
    if rng.random() < COPIED:
        found += checks.copies(crf, result)
    if rng.random() < SAVED and hasattr(result, "save"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "result.npz"
            result.save(path)
            differs = checks.same(densecrf.Result.load(path), result)
            if differs:
                found.append(f"{differs}: changed by saving and loading")
    return found
