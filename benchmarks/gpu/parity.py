"""Parity with the compiled core: d = 2, 3, 5, with 2, 21 and 150 labels, on the paper's images."""

from itertools import product

import numpy as np

import densecrf
from benchmarks.gpu.data import FLOOR, PAPER
from benchmarks.gpu.timing import DEVICE

MOST = {"prox-lp": 10, "lp": 30}  # iterations, where the gap is not reached by then
LIMITS = (1e-5, 1e-4, 1e-3)  # energies and bounds, relative to the energy; labels


def spread(probs, labels):
    """Keep the likeliest labels, or split each into several of different strength."""
    have = probs.shape[0]
    if labels <= have:
        return probs[np.argsort(-probs.sum((1, 2)))[:labels]]
    rng = np.random.default_rng(0)
    parts = np.repeat(probs, -(-labels // have), axis=0)[:labels]
    return parts * (0.5 + rng.random(parts.shape, dtype=np.float32))


def cases(folder, step=1):
    """Yield name, model and method."""
    for name in PAPER:
        data = np.load(folder / f"{name}.npz")
        probs = np.moveaxis(data["probs"], 2, 0).astype(np.float32)[:, ::step, ::step]
        image = data["image"][::step, ::step]
        grey = image.astype(np.float32).mean(2)
        smooth = densecrf.Spatial(3, weight=3)
        kernels = {
            2: [smooth],
            3: [smooth, densecrf.Bilateral(grey, 60, 13, weight=10)],
            5: [smooth, densecrf.Bilateral(image, 60, 13, weight=10)],
        }
        for d, labels in product((2, 3, 5), (2, 21, 150)):
            unary = -np.log(np.maximum(spread(probs, labels), FLOOR))
            crf = densecrf.DenseCRF(unary, kernels[d])
            for method in ("mf5", "dc-neg", "prox-lp", "lp") if labels == 21 else ("mf5", "lp"):
                yield f"{name}/d={d}/{labels}/{method}", crf, method


def write_reference(folder, path, step=1):
    """Keep the compiled core's answers."""
    kept = {}
    for key, crf, method in cases(folder, step):
        result = crf.solve(method, max_iterations=MOST.get(method))
        bound = np.nan if result.lower_bound is None else result.lower_bound
        kept[f"{key}/values"] = np.array([result.energy, bound, result.iterations])
        kept[f"{key}/labels"] = result.labels.astype(np.uint8)
        print(key, result.energy, bound, result.iterations, f"{result.seconds:.1f} s", flush=True)
    np.savez_compressed(path, **kept)


def compare(folder, path, table, step=1):
    """Print the differences; energies must agree to 1e-5, bounds to 1e-4, labels on 99.9 %."""
    reference, rows = np.load(path), {}
    for key, crf, method in cases(folder, step):
        energy, bound, iterations = reference[f"{key}/values"]
        result = crf.solve(method, max_iterations=MOST.get(method), device=DEVICE)
        errors = [
            abs(result.energy / energy - 1),
            0.0 if result.lower_bound is None else abs(result.lower_bound - bound) / abs(energy),
            float((result.labels != reference[f"{key}/labels"]).mean()),
        ]
        rows[key] = [*errors, result.iterations, int(iterations)]
        print("parity", key, *(f"{e:.1e}" for e in errors), *rows[key][3:], flush=True)
    table["cases"] = len(rows)
    for i, name in enumerate(("energy", "bound", "labels")):
        table[f"worst {name}"] = max(row[i] for row in rows.values())
    table["outside the limits"] = [
        key
        for key, row in rows.items()
        if any(e > most for e, most in zip(row, LIMITS, strict=False))
    ]
