"""Solve on a GPU: parity with the compiled core, times, batches, a huge image.

    PYTHONPATH=src python benchmarks/gpu_solvers.py --write-reference reference.npz --data FOLDER
    PYTHONPATH=src python benchmarks/gpu_solvers.py --reference reference.npz --data FOLDER

The first form runs the compiled core on the CPU and keeps its answers; the second compares a GPU's
with them and measures. FOLDER holds NAME.npz with `image` (h, w, 3) uint8 and `probs` (h, w, L),
or `logits` (h', w', L) at a lower resolution. Times are medians of device events around everything
from logits and image on the device to the answer there, construction of the lattices included.
"""

import argparse
import json
import statistics
import time
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch

import densecrf
from densecrf.torch import DenseCRF

SIZE = (500, 375)
FLOOR = 1e-5
MOST = {"prox-lp": 10, "lp": 30}  # iterations; where the gap is not reached by then


def spread(probs, labels):
    """Keep the likeliest labels, or split each into equal parts with some noise."""
    have = probs.shape[0]
    if labels <= have:
        return probs[np.argsort(-probs.sum((1, 2)))[:labels]]
    rng = np.random.default_rng(0)
    parts = np.repeat(probs, -(-labels // have), axis=0)[:labels]
    return parts * (0.5 + rng.random(parts.shape, dtype=np.float32))


def parity_cases(folder):
    """Yield name, model and methods: d = 2, 3, 5, and 2, 21, 150 labels."""
    for name in ("2_14_s", "4_11_s"):
        data = np.load(folder / f"{name}.npz")
        probs = np.moveaxis(data["probs"], 2, 0).astype(np.float32)
        image = data["image"]
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


def answer(crf, method, **options):
    return crf.solve(method, max_iterations=MOST.get(method), **options)


def write_reference(folder, path):
    kept = {}
    for key, crf, method in parity_cases(folder):
        result = answer(crf, method)
        bound = np.nan if result.lower_bound is None else result.lower_bound
        kept[f"{key}/values"] = np.array([result.energy, bound, result.iterations])
        kept[f"{key}/labels"] = result.labels.astype(np.uint8)
        print(key, result.energy, bound, result.iterations, f"{result.seconds:.1f} s", flush=True)
    np.savez_compressed(path, **kept)


def check_parity(folder, path):
    """Print the differences; energies must agree to 1e-5, bounds 1e-4, labels on 99.9 %."""
    reference, rows, failures = np.load(path), [], []
    for key, crf, method in parity_cases(folder):
        if f"{key}/values" not in reference:
            continue
        energy, bound, iterations = reference[f"{key}/values"]
        result = answer(crf, method, device="cuda")
        same = float((result.labels == reference[f"{key}/labels"]).mean())
        errors = [abs(result.energy / energy - 1), 0.0, 1 - same]
        if result.lower_bound is not None:
            errors[1] = abs(result.lower_bound - bound) / abs(energy)
        rows.append((key, *errors, result.iterations, int(iterations)))
        if errors[0] > 1e-5 or errors[1] > 1e-4 or errors[2] > 1e-3:
            failures.append(key)
        print("parity", key, *(f"{e:.1e}" for e in errors), result.iterations, int(iterations))
    worst = [max(row[i] for row in rows) for i in (1, 2, 3)]
    print(f"parity of {len(rows)} cases: worst energy {worst[0]:.1e}, bound {worst[1]:.1e}, "
          f"labels {worst[2]:.1e}; outside the limits: {failures}", flush=True)  # fmt: skip
    return rows


def resized(array, size, mode="bilinear"):
    """Resize (h, w, c) to a (1, c, *size) tensor on the device."""
    tensor = torch.from_numpy(np.moveaxis(array.astype(np.float32), 2, 0).copy())[None].cuda()
    return torch.nn.functional.interpolate(tensor, size=size, mode=mode, align_corners=False)


def load(folder, name, size=SIZE, doubly=False):
    """Logits and image of one file, (1, L, *size) and (1, 3, *size)."""
    data = np.load(folder / f"{name}.npz")
    image = resized(data["image"], size).round()
    if "logits" in data:
        return resized(data["logits"], size), image
    probs = resized(data["probs"], size)
    return (probs if doubly else probs.clamp(min=FLOOR).log()), image


def timed(function, repeats=7, warmup=2):
    """Median milliseconds between device events, and the last answer."""
    times, result = [], None
    for turn in range(warmup + repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        result = function()
        end.record()
        torch.cuda.synchronize()
        if turn >= warmup:
            times.append(start.elapsed_time(end))
    return statistics.median(times), result


def described(result):
    return {
        "energy": result.energy[0],
        "gap": result.gap[0],
        "iterations": result.iterations[0],
        "converged": result.converged[0],
    }


def profile(function, title):
    """Device time of each kernel of one call."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as trace:
        function()
        torch.cuda.synchronize()
    events = sorted(trace.key_averages(), key=lambda e: -e.device_time_total)
    total, count = sum(e.device_time_total for e in events), sum(e.count for e in events)
    print(f"-- {title}: {total / 1e3:.2f} ms on the device, {count} launches")
    for event in events[:22]:
        print(f"   {event.device_time_total / 1e3:8.3f} ms ({event.count:4d})  {event.key[:90]}")


def single(folder, table):
    crf = DenseCRF().cuda()
    calls = {}
    with torch.no_grad():
        for doubly in (False, True):
            logits, image = load(folder, "2_14_s", doubly=doubly)
            name = "softmax twice" if doubly else "-log p"
            calls[f"lp, 2_14_s, {name}"] = partial(crf.solve, logits=logits, image=image)
            calls["mf, 5 iterations"] = partial(crf, logits=logits, image=image)
        for name, call in calls.items():
            started = time.perf_counter()
            call()
            first = time.perf_counter() - started
            ms, result = timed(call, 25, 10)
            table[name] = {"ms": ms, "first call s": first}
            if name.startswith("lp"):
                table[name].update(described(result))
            print(name, table[name], flush=True)
    return calls


def batch(folder, table):
    names = sorted(p.stem for p in folder.glob("*.npz") if "logits" in np.load(p))[:16]
    pairs = [load(folder, name) for name in names]
    logits, image = (torch.cat(each) for each in zip(*pairs, strict=True))
    with torch.no_grad():
        for weights in ((3.0, 10.0), (1.0, 4.0)):
            crf = DenseCRF(spatial_weight=weights[0], bilateral_weight=weights[1]).cuda()
            ms, result = timed(partial(crf.solve, logits=logits, image=image), 2, 1)
            mf, _ = timed(partial(crf, logits=logits, image=image), 3, 2)
            table[f"batch of {len(names)}, weights {weights}"] = {
                "lp images/s": 1e3 * len(names) / ms,
                "mf images/s": 1e3 * len(names) / mf,
                "gaps": [round(g, 5) for g in result.gap],
                "iterations": result.iterations,
            }
            print(table[f"batch of {len(names)}, weights {weights}"], flush=True)


def huge(folder, table, side):
    logits, image = load(folder, "2_14_s", (side, side))
    image = (image + 4 * torch.randn_like(image)).clamp(0, 255)
    crf = DenseCRF().cuda()
    torch.cuda.reset_peak_memory_stats()
    with torch.no_grad():
        crf.solve(logits=logits[..., :512, :512], image=image[..., :512, :512])
        for method in ("mf5", "lp"):
            torch.cuda.synchronize()
            started = time.perf_counter()
            result = crf.solve(logits=logits, image=image, method=method)
            torch.cuda.synchronize()
            table[f"{side} x {side} x 21, {method}"] = {
                "s": time.perf_counter() - started,
                "peak GiB": torch.cuda.max_memory_allocated() / 2**30,
                **described(result),
            }
            print(table[f"{side} x {side} x 21, {method}"], flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--write-reference", type=Path)
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--side", type=int, default=4096, help="side of the huge image; 0: none")
    parser.add_argument("--no-batch", action="store_true")
    arguments = parser.parse_args()
    if arguments.write_reference:
        write_reference(arguments.data, arguments.write_reference)
        return
    table = {}
    calls = single(arguments.data, table)
    if not arguments.no_batch:
        batch(arguments.data, table)
    if arguments.side:
        huge(arguments.data, table, arguments.side)
    if arguments.reference:
        table["parity"] = check_parity(arguments.data, arguments.reference)
    for name, call in calls.items():  # last: a profiler slows down what comes after it
        with torch.no_grad():
            profile(call, name)
    if arguments.json:
        arguments.json.write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
