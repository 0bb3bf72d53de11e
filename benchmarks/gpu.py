"""Check the GPU filters against float64 and time them, in one run on one card.

    PYTHONPATH=src python benchmarks/gpu.py --image photograph.npy

`--image` is a (height, width, 3) uint8 array, resized by the caller to 375 x 500. Times are
medians of device events; "graph" replays a captured CUDA graph, which leaves out the host's launch
costs, "eager" includes them. The byte floor counts each pass of the blur reading and writing its
values once, the scores read and the result written once, over the measured copy bandwidth.
"""

import argparse
import json
import statistics
from pathlib import Path

import numpy as np
import torch

from densecrf.torch import Lattice, filter_triton, ordered_sum
from densecrf.torch.pixelwise import (
    descend,
    lower_bound,
    mean_field_update,
    project_simplex,
)

KERNELS = {
    "spatial 3": (3, None),
    "60/13": (60, 13),
    "31.2/7.95": (31.2, 7.95),
    "49.8/1": (49.8, 1),
}
LABELS, LEVELS = 21, 10


def features(image, sigma_xy, sigma_color):
    height, width = image.shape[:2]
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    parts = [torch.stack([x, y], -1) / sigma_xy]
    if sigma_color is not None:
        parts.append(torch.from_numpy(image).float() / sigma_color)
    return torch.cat(parts, -1).reshape(height * width, -1).float().cuda()


def timed(function, repeats=30, warmup=5):
    """Median milliseconds between device events."""
    for _ in range(warmup):
        function()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        function()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def graphed(function):
    """Median milliseconds of replaying `function` as a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return timed(graph.replay)


def copy_bandwidth():
    """Bytes per second of a device-to-device copy, reads and writes counted."""
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / (timed(lambda: target.copy_(source)) * 1e-3)


def floor_ms(lattice, bandwidth, passes):
    """Least bytes of an ordered filtering over the bandwidth."""
    rows = lattice.vertices * LABELS * (LEVELS - 1) * 4
    pixels = 2 * lattice.n * LABELS * 4
    return (2 * passes * rows + pixels) / bandwidth * 1e3


class NaiveLattice:
    """What one writes first: unique rows, searchsorted neighbours, scatter_add, gathers."""

    def __init__(self, reference):
        topology = reference.topology
        self.corner = topology.corner.long()
        self.weight = reference.corner_weight
        missing = topology.neighbour < 0
        self.neighbour = topology.neighbour.long().masked_fill(missing, topology.vertices)
        self.vertices = topology.vertices
        self.scale = reference.scale

    def ordered(self, scores):
        labels, n = scores.shape
        t = (scores * (LEVELS - 1)).T
        bins = t.floor().clamp(max=LEVELS - 2).long()
        f = t - bins
        out = torch.empty_like(t)
        width = self.corner.shape[1]
        for label in range(labels):
            flat = torch.zeros((self.vertices + 1) * LEVELS, device=t.device)
            for k in range(width):
                at = self.corner[:, k] * LEVELS + bins[:, label]
                weight = self.weight[:, k]
                flat.scatter_add_(0, at, weight * (1 - f[:, label]))
                flat.scatter_add_(0, at + 1, weight * f[:, label])
            values = flat.view(-1, LEVELS)
            for plus, minus in self.neighbour:
                blurred = values[:-1] + 0.5 * (values[plus] + values[minus])
                values = torch.cat([blurred, values[-1:]])
            sums = values.cumsum(1)
            values = 2 * sums - values - sums[:, -1:]
            flat = values.reshape(-1)
            result = torch.zeros(n, device=t.device)
            for k in range(width):
                at = self.corner[:, k] * LEVELS + bins[:, label]
                value = flat[at] * (1 - f[:, label]) + flat[at + 1] * f[:, label]
                result += self.weight[:, k] * value
            out[:, label] = result * self.scale
        return out.T


def relative(got, want):
    return float((got.double() - want).norm() / want.norm())


def check(image, results):
    """Compare with float64 on the same card; every figure must stay under its limit."""
    rng = torch.Generator(device="cuda").manual_seed(1)
    cases = [(name, features(image[::4, ::4], *sigmas), 21) for name, sigmas in KERNELS.items()]
    cases += [("60/13", cases[1][1], labels) for labels in (1, 40)]
    for d in (1, 8, 20):
        cases.append((f"d={d}", 3 * torch.rand(2000, d, device="cuda", generator=rng), 3))
    for name, f, labels in cases:
        for order in ("symmetric", "forward"):
            fast, exact = Lattice.build(f, order=order), Lattice.build(f.double(), order=order)
            scores = torch.rand(labels, len(f), device="cuda", generator=rng) ** 3
            errors = [relative(fast.apply(scores), exact.apply(scores))]
            for soft in (True, False):
                # Both floor the float32 level: an edge of a level is no error of the filter.
                t = scores * 9
                levels = (t if soft else t.floor()).double() / 9
                want = exact.ordered(levels, soft=True)
                got = fast.ordered(scores, soft=soft)
                errors.append(relative(got, want))
                assert torch.equal(got, fast.ordered(scores, soft=soft)), "not deterministic"
            assert max(errors) < 1e-4, (name, order, labels, errors)
            results.append((name, order, labels, errors))
    batch = torch.stack([cases[1][1], cases[1][1] + 0.3])
    scores = torch.rand(5, batch[0].shape[0] * 2, device="cuda", generator=rng)
    both = Lattice.build(batch).ordered(scores)
    for i in range(2):
        part = slice(i * batch.shape[1], (i + 1) * batch.shape[1])
        assert (
            relative(both[:, part], Lattice.build(batch[i]).ordered(scores[:, part]).double())
            < 1e-5
        )
    for labels in (1, 2, 21, 150):
        z, phi, r = (torch.randn(labels, 10_000, device="cuda", generator=rng) for _ in range(3))
        assert relative(project_simplex(z), project_simplex(z.double())) < 1e-5
        got = mean_field_update(phi, r, z, z[0])
        assert relative(got, torch.softmax(r - z[0] * z - phi, 0).double()) < 1e-5
        assert relative(lower_bound(phi, r), lower_bound(phi.double(), r.double())) < 1e-6
    print(f"checks passed; largest error {max(max(e) for *_, e in results):.1e}")


def profile(function, title):
    """Mean time of each kernel of one call."""
    function()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as trace:
        for _ in range(5):
            function()
        torch.cuda.synchronize()
    print(f"-- {title}: microseconds a call (launches)")
    for event in sorted(trace.key_averages(), key=lambda e: -e.device_time_total):
        if event.device_time_total > 5:
            print(
                f"   {event.device_time_total / 5:8.1f} ({event.count // 5:3d})  {event.key[:70]}"
            )


def benchmark(image, table):
    """Fill `table` with times in milliseconds."""
    bandwidth = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}, copy {bandwidth / 1e12:.2f} TB/s")
    n = image.shape[0] * image.shape[1]
    dense = torch.softmax(3 * torch.randn(LABELS, n, device="cuda"), 0)
    uniform = torch.rand(LABELS, n, device="cuda")
    lattices = {}
    for name, sigmas in KERNELS.items():
        f = features(image, *sigmas)
        lattice = lattices[name] = Lattice.build(f).normalized()
        forward = Lattice.build(f, order="forward").normalized()
        _ = lattice.mass, forward.mass
        d = lattice.dimension
        row = table[name] = {
            "vertices/n": lattice.vertices / n,
            "build": timed(lambda f=f: Lattice.build(f)),
            "symmetric": graphed(lambda x=lattice: x.ordered(dense)),
            "symmetric eager": timed(lambda x=lattice: x.ordered(dense)),
            "uniform scores": graphed(lambda x=lattice: x.ordered(uniform)),
            "forward": graphed(lambda x=forward: x.ordered(dense)),
            "plain": graphed(lambda x=lattice: x.apply(dense)),
            "floor symmetric": floor_ms(lattice, bandwidth, 2 * (d + 1)),
            "floor forward": floor_ms(lattice, bandwidth, d + 1),
        }
        naive = NaiveLattice(forward)
        difference = relative(naive.ordered(dense), forward.ordered(dense).double())
        assert difference < 1e-4, difference
        row["naive"] = timed(lambda x=naive: x.ordered(dense), repeats=5, warmup=1)
        print(name, {key: round(value, 4) for key, value in row.items()}, flush=True)
        profile(lambda x=lattice: x.ordered(dense), f"ordered {name}")
    both = [lattices["spatial 3"], lattices["60/13"]]
    inputs = [features(image, *KERNELS[name]) for name in ("spatial 3", "60/13")]
    table["both"] = {
        "build": timed(lambda: Lattice.build_all(inputs)),
        "build and normalise": timed(
            lambda: [each.normalized().mass for each in Lattice.build_all(inputs)]
        ),
        "ordered": graphed(lambda: ordered_sum(both, [3.0, 10.0], dense)),
        "ordered eager": timed(lambda: ordered_sum(both, [3.0, 10.0], dense)),
    }
    print("both", table["both"], flush=True)
    profile(lambda: Lattice.build_all(inputs), "build both")
    phi, r, step = torch.rand_like(dense), torch.randn_like(dense), torch.rand(n, device="cuda")
    table["pixelwise"] = {
        "project": graphed(lambda: project_simplex(phi)),
        "mean field": graphed(lambda: mean_field_update(phi, r, dense, step)),
        "bound": graphed(lambda: lower_bound(phi, r)),
        "step": graphed(lambda: descend(dense, phi, r, dense, step, step)),
        "floor of step": 5 * dense.nbytes / bandwidth * 1e3,
    }
    print("pixelwise", table["pixelwise"], flush=True)
    return lattices, dense


def tune(lattices, scores):
    """Time other shapes of the kernels' tiles, ordered and plain."""
    choices = {
        "splat": ((64, 1), (128, 1), (256, 1)),
        "slice": ((256, 2), (512, 2), (512, 4), (1024, 4)),
        "blur": ((256, 64, 1), (512, 64, 1), (512, 128, 1), (1024, 64, 2), (1024, 64, 4)),
    }
    for name, lattice in lattices.items():
        for field, values in choices.items():
            default = getattr(filter_triton.SHAPES, field)
            times = {}
            for value in values:
                setattr(filter_triton.SHAPES, field, value)
                ordered = graphed(lambda x=lattice: x.ordered(scores))
                plain = graphed(lambda x=lattice: x.apply(scores))
                times[str(value)] = (round(ordered, 4), round(plain, 4))
            setattr(filter_triton.SHAPES, field, default)
            print("tune", name, field, times, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--image", type=Path, required=True)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--tune", action="store_true", help="also time other tile shapes")
    parser.add_argument("--no-check", action="store_true", help="skip the comparison with float64")
    arguments = parser.parse_args()
    image = np.load(arguments.image)
    table = {}
    if not arguments.no_check:
        check(image, [])
    lattices, scores = benchmark(image, table)
    if arguments.tune:
        tune(lattices, scores)
    if arguments.json:
        arguments.json.write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
