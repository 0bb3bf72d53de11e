"""Whole solutions: one image, batches, a huge image."""

import statistics
import time
from functools import partial

import torch

from benchmarks.gpu.data import SIGMAS, load, network_batch, paper_batch
from benchmarks.gpu.timing import DEVICE, profile, synchronize, timed
from densecrf.torch import DenseCRF

STREAM = 64  # images


def layer(spatial=3.0, appearance=10.0):
    """Return the layer that is measured."""
    return DenseCRF(spatial_weight=spatial, bilateral_weight=appearance, **SIGMAS).to(DEVICE)


def described(result):
    return {
        "energy": result.energy[0],
        "gap": result.gap[0],
        "iterations": result.iterations[0],
        "converged": result.converged[0],
    }


def single(folder, size, table):
    """From logits and image on the device to the answer there, lattices included."""
    with torch.no_grad():
        for name, call in _calls(folder, size).items():
            ms, result = timed(call, 25, 10)
            table[name] = {"ms": ms}
            if name.startswith("lp"):
                table[name].update(described(result))
            print(name, table[name], flush=True)
    table["new images"] = _new_images(folder, size)
    print(table["new images"], flush=True)


def profiles(folder, size, table):
    """Print where the time on the device goes; last, since a profiler slows what comes after."""
    with torch.no_grad():
        for name, call in _calls(folder, size).items():
            table[name] = profile(call, name)


def _calls(folder, size):
    crf = layer()
    logits, image = load(folder, "2_14_s", size)
    doubly, _ = load(folder, "2_14_s", size, doubly=True)
    return {
        "mf, 5 iterations": partial(crf, logits=logits, image=image),
        "lp, -log p": partial(crf.solve, logits=logits, image=image),
        "lp, softmax twice": partial(crf.solve, logits=doubly, image=image),
    }


def _new_images(folder, size):
    """Mean field on sixteen images in turn: the lattices differ in size every time."""
    crf = layer()
    logits, images = network_batch(folder, size)
    times = []
    with torch.no_grad():
        for turn in range(3):
            for item in range(len(logits)):
                call = partial(crf, logits=logits[item : item + 1], image=images[item : item + 1])
                ms, _ = timed(call, 1, 0)
                if turn:
                    times.append(ms)
    return {"median ms": statistics.median(times), "largest ms": max(times)}


def batch(folder, size, table):
    """Images a second, each proven within 0.1 % where it says so."""
    cases = {
        "the paper's images, 3/10": (paper_batch(folder, size), (3.0, 10.0)),
        "network logits, 1/4": (network_batch(folder, size), (1.0, 4.0)),
        "network logits, 3/10": (network_batch(folder, size), (3.0, 10.0)),
    }
    with torch.no_grad():
        for name, ((logits, images), (spatial, appearance)) in cases.items():
            crf = layer(spatial, appearance)
            ms, result = timed(partial(crf.solve, logits=logits, image=images), 3, 1)
            mf, _ = timed(partial(crf, logits=logits, image=images), 5, 2)
            table[name] = {
                "lp images/s": 1e3 * len(logits) / ms,
                "certified": sum(result.converged),
                "largest gap": max(result.gap),
                "iterations": result.iterations,
                "mf images/s": 1e3 * len(logits) / mf,
            }
            print(name, table[name], flush=True)


def stream(folder, size, table):
    """Images a second of a list that is longer than what is solved at a time."""
    logits, images = (
        [*each, *each.flip(3)] * (STREAM // 32) for each in network_batch(folder, size)
    )
    with torch.no_grad():
        for weights in ((1.0, 4.0), (3.0, 10.0)):
            crf = layer(*weights)
            ms, result = timed(partial(crf.solve, logits=logits, image=images), 1, 1)
            row = {"images/s": 1e3 * len(logits) / ms, "certified": sum(result.converged)}
            table["{:g}/{:g}".format(*weights)] = row
            print(weights, row, flush=True)


def huge(folder, size, table):
    """Solve a picture enlarged to `size`, with noise added: time and memory."""
    logits, image = load(folder, "2_14_s", size)
    image = (image + 4 * torch.randn_like(image)).clamp(0, 255)
    crf = layer()
    with torch.no_grad():
        crf.solve(logits=logits[..., :256, :256], image=image[..., :256, :256])
        for method in ("mf5", "lp"):
            if DEVICE.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            synchronize()
            started = time.perf_counter()
            result = crf.solve(logits=logits, image=image, method=method)
            synchronize()
            row = {"s": time.perf_counter() - started, **described(result)}
            if DEVICE.type == "cuda":
                row["peak GiB"] = torch.cuda.max_memory_allocated() / 2**30
            table[f"{size[0]} x {size[1]} x {logits.shape[1]}, {method}"] = row
            print(method, row, flush=True)
