"""Clocks: device events, replayed graphs, kernel profiles. Without a GPU, the host's clock."""

import statistics
import time

import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def synchronize():
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def timed(function, repeats=25, warmup=5):
    """Median milliseconds between device events, and the last answer; one call without a GPU."""
    times, answer = [], None
    if DEVICE.type != "cuda":
        repeats, warmup = 1, 0
    for turn in range(warmup + repeats):
        synchronize()
        if DEVICE.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            answer = function()
            end.record()
            synchronize()
            taken = start.elapsed_time(end)
        else:
            begun = time.perf_counter()
            answer = function()
            taken = 1e3 * (time.perf_counter() - begun)
        if turn >= warmup:
            times.append(taken)
    return statistics.median(times), answer


def graphed(function, repeats=25):
    """Median milliseconds of replaying `function` as a CUDA graph: the host's launches left out."""
    if DEVICE.type != "cuda":
        return timed(function, 1, 0)[0]
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            function()
    synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return timed(graph.replay, repeats)[0]


def copy_bandwidth(size=1 << 28):
    """Bytes per second of a copy on the device, reads and writes counted."""
    source = torch.randn(size if DEVICE.type == "cuda" else 1 << 20, device=DEVICE)
    target = torch.empty_like(source)
    ms, _ = timed(lambda: target.copy_(source))
    return 2 * source.nbytes / (ms * 1e-3)


def profile(function, title, most=16):
    """Print the device time of each kernel of one call; return the sum in milliseconds."""
    if DEVICE.type != "cuda":
        return None
    function()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as trace:
        function()
        synchronize()
    events = sorted(trace.key_averages(), key=lambda e: -e.device_time_total)
    total, count = sum(e.device_time_total for e in events), sum(e.count for e in events)
    print(f"-- {title}: {total / 1e3:.2f} ms on the device, {count} launches")
    for event in events[:most]:
        print(f"   {event.device_time_total / 1e3:8.3f} ms ({event.count:4d})  {event.key[:80]}")
    return total / 1e3
