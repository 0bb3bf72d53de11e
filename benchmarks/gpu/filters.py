"""Lattices and filters: checked against float64, timed against a naive version and byte floors."""

import torch

from benchmarks.gpu.data import load
from benchmarks.gpu.naive import NaiveLattice
from benchmarks.gpu.timing import DEVICE, copy_bandwidth, graphed, profile, timed
from densecrf.operators.torch.lattice import Levels
from densecrf.operators.torch.pairwise import TensorPairwise
from densecrf.operators.torch.pixelwise import (
    descend,
    lower_bound,
    mean_field_update,
    project_simplex,
)
from densecrf.torch import Lattice

KERNELS = {
    "spatial 3": (3, None),
    "60/13": (60, 13),
    "31.2/7.95": (31.2, 7.95),
    "49.8/1": (49.8, 1),
}
LABELS, LEVELS = 21, 10


def features(image, sigma_xy, sigma_color):
    height, width = image.shape[2:]
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    parts = [torch.stack([x, y], -1).to(DEVICE) / sigma_xy]
    if sigma_color is not None:
        parts.append(image[0].movedim(0, -1) / sigma_color)
    return torch.cat(parts, -1).reshape(height * width, -1).float()


def relative(got, want):
    return float((got.double() - want).norm() / want.norm())


def _errors(f, labels, order, rng):
    """Relative errors of the filters, plain, soft and hard, on fresh random scores."""
    fast, exact = Lattice.build(f, order=order), Lattice.build(f.double(), order=order)
    scores = torch.rand(labels, len(f), device=DEVICE, generator=rng) ** 3
    errors = [relative(fast.apply(scores), exact.apply(scores))]
    for soft in (True, False):
        # Both floor the float32 level: an edge of a level is no error of the filter.
        t = scores * 9
        levels = (t if soft else t.floor()).double() / 9
        got = fast.ordered(scores, soft=soft)
        errors.append(relative(got, exact.ordered(levels, soft=True)))
        assert torch.equal(got, fast.ordered(scores, soft=soft)), "not deterministic"
    return errors


def check(folder, size, table):
    """Compare with float64; every error must stay under its limit."""
    _, image = load(folder, "2_14_s", tuple(side // 4 for side in size))
    rng = torch.Generator(device=DEVICE).manual_seed(1)
    cases = [(name, features(image, *sigmas), LABELS) for name, sigmas in KERNELS.items()]
    cases += [("60/13", cases[1][1], labels) for labels in (1, 40)]
    for d in (1, 8, 20):
        cases.append((f"d={d}", 3 * torch.rand(2000, d, device=DEVICE, generator=rng), 3))
    worst = 0.0
    for name, f, labels in cases:
        for order in ("symmetric", "forward"):
            errors = _errors(f, labels, order, rng)
            assert max(errors) < 1e-4, (name, order, labels, errors)
            worst = max(worst, *errors)
    for labels in (1, 2, 21, 150):
        z, phi, r = (torch.randn(labels, 10_000, device=DEVICE, generator=rng) for _ in range(3))
        got = [project_simplex(z), mean_field_update(phi, r, z, z[0]), lower_bound(phi, r)]
        want = [
            project_simplex(z.double()),
            torch.softmax((r - z[0] * z - phi).double(), 0),
            lower_bound(phi.double(), r.double()),
        ]
        errors = [relative(a, b) for a, b in zip(got, want, strict=True)]
        assert max(errors) < 1e-5, (labels, errors)
        worst = max(worst, *errors)
    table["largest relative error against float64"] = worst


def floor_ms(lattice, bandwidth, passes):
    """Least bytes of an ordered filter call over the bandwidth.

    Each pass of the blur reads and writes its values once, scores are read and results written.
    """
    rows = lattice.vertices * LABELS * (LEVELS - 1) * 4
    pixels = 2 * lattice.n * LABELS * 4
    return (2 * passes * rows + pixels) / bandwidth * 1e3


def measure(folder, size, table):
    """Time each kernel's lattice and filters, and both of the usual ones together."""
    bandwidth = copy_bandwidth()
    table["copy, TB/s"] = bandwidth / 1e12
    _, image = load(folder, "2_14_s", size)
    n = size[0] * size[1]
    scores = torch.softmax(3 * torch.randn(LABELS, n, device=DEVICE), 0)
    for name, sigmas in KERNELS.items():
        f = features(image, *sigmas)
        table[name] = _one(f, scores, bandwidth)
        print(name, {key: round(value, 4) for key, value in table[name].items()}, flush=True)
    usual = [features(image, *KERNELS[name]) for name in ("spatial 3", "60/13")]
    table["both"] = _both(usual, scores)
    print("both", table["both"], flush=True)
    pixels, r, step = torch.rand_like(scores), torch.randn_like(scores), torch.rand_like(scores[0])
    table["pixelwise"] = {
        "project": graphed(lambda: project_simplex(pixels)),
        "mean field": graphed(lambda: mean_field_update(pixels, r, scores, step)),
        "bound": graphed(lambda: lower_bound(pixels, r)),
        "descend": graphed(lambda: descend(scores, pixels, r, scores, step, step)),
        "floor of descend": 5 * scores.nbytes / bandwidth * 1e3,
    }
    print("pixelwise", table["pixelwise"], flush=True)


def _one(f, scores, bandwidth):
    lattice, forward = Lattice.build(f), Lattice.build(f, order="forward")
    _ = lattice.mass, forward.mass
    naive_build, naive = timed(lambda: NaiveLattice(f), 5, 2)
    difference = relative(naive.ordered(scores), forward.ordered(scores).double())
    assert difference < 1e-4, difference
    d = lattice.dimension
    return {
        "vertices/n": lattice.vertices / lattice.n,
        "build": timed(lambda: Lattice.build(f))[0],
        "naive build": naive_build,
        "symmetric": graphed(lambda: lattice.ordered(scores)),
        "symmetric eager": timed(lambda: lattice.ordered(scores))[0],
        "floor symmetric": floor_ms(lattice, bandwidth, 2 * (d + 1)),
        "forward": graphed(lambda: forward.ordered(scores)),
        "floor forward": floor_ms(lattice, bandwidth, d + 1),
        "naive forward": timed(lambda: naive.ordered(scores), 5, 1)[0],
        "plain": graphed(lambda: lattice.apply(scores)),
    }


def _both(usual, scores):
    """Both kernels: built together, and filtered in one pass as the solvers do."""
    pairwise = TensorPairwise(usual, [3.0, 10.0], scores)
    levels = Levels(LEVELS - 1, 0.0, float(LEVELS - 1), True)

    def ordered():
        return pairwise.ordered(scores, levels)

    return {
        "build": timed(lambda: Lattice.build_all(usual))[0],
        "build, merge, normalise": timed(lambda: TensorPairwise(usual, [3.0, 10.0], scores))[0],
        "ordered eager": timed(ordered)[0],
        "ordered": graphed(ordered),
    }


def profiles(folder, size, table):
    """Print the time of each kernel of a build and of a filter call."""
    _, image = load(folder, "2_14_s", size)
    scores = torch.softmax(3 * torch.randn(LABELS, size[0] * size[1], device=DEVICE), 0)
    usual = [features(image, *KERNELS[name]) for name in ("spatial 3", "60/13")]
    pairwise = TensorPairwise(usual, [3.0, 10.0], scores)
    levels = Levels(LEVELS - 1, 0.0, float(LEVELS - 1), True)
    table["build both"] = profile(lambda: Lattice.build_all(usual), "build both")
    table["ordered, both"] = profile(lambda: pairwise.ordered(scores, levels), "ordered, both")
