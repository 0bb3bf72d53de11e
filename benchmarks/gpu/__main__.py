"""Check and measure the GPU back end on one card.

    python -m benchmarks.gpu pack --shared ../shared/data --data out/gpu-data
    python -m benchmarks.gpu reference --data out/gpu-data      (with the compiled core)
    python -m benchmarks.gpu measure --data out/gpu-data        (on the GPU; needs no core)

`measure` runs tests/torch with real kernels, compares with float64 and with the compiled core's
answers, and times; each section goes on where another failed. Times are medians of device events
after warming up. Without a GPU it runs all the same, slowly: use a small --size.
"""

import argparse
import json
import subprocess
import sys
import time
import traceback
from functools import partial
from pathlib import Path

import torch

from benchmarks.gpu import data, filters, parity, solvers
from benchmarks.gpu.timing import DEVICE


def tests(table):
    """Run the tests of the torch back end, in a process of their own."""
    command = [sys.executable, "-m", "pytest", "tests/torch", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    table["summary"] = lines[-1] if lines else done.stderr[-500:]
    if done.returncode:
        print(done.stdout[-6000:], done.stderr[-2000:])


def measure(arguments):
    """Run the sections that were asked for; return what they found."""
    folder, size = arguments.data, tuple(arguments.size)
    sections = {
        "single": partial(solvers.single, folder, size),
        "batch": partial(solvers.batch, folder, size),
        "stream": partial(solvers.stream, folder, size),
        "filters": partial(filters.measure, folder, size),
        "check": partial(filters.check, folder, size),
        "huge": partial(solvers.huge, folder, (arguments.side, arguments.side)),
        "parity": partial(
            parity.compare, folder, folder / "reference.npz", step=arguments.parity_step
        ),
        "tests": tests,
        "filter profiles": partial(filters.profiles, folder, size),
        "solver profiles": partial(solvers.profiles, folder, size),
    }
    found = {"machine": {"device": str(DEVICE), "torch": torch.__version__}}
    if DEVICE.type == "cuda":
        found["machine"]["device"] = torch.cuda.get_device_name()
    for name in arguments.only or sections:
        started = time.perf_counter()
        found[name] = {}
        try:
            sections[name](found[name])
        except Exception:
            traceback.print_exc(file=sys.stdout)
            found[name]["failed"] = traceback.format_exc().splitlines()[-1]
        print(f"== {name}: {time.perf_counter() - started:.0f} s", flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(found, indent=1))
    return found


def summary(found):
    """Print what was found, a line each."""
    for section, rows in found.items():
        for name, row in rows.items():
            text = json.dumps(row) if isinstance(row, (dict, list)) else row
            print(f"{section} | {name} | {text}")


def main():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0]
    )
    parser.add_argument("what", choices=("pack", "reference", "measure"))
    parser.add_argument("--data", type=Path, required=True, help="folder of NAME.npz")
    parser.add_argument("--shared", type=Path, help="the shared data that pack reads")
    parser.add_argument("--only", nargs="+", help="sections to run")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--size", type=int, nargs=2, default=data.SIZE)
    parser.add_argument("--side", type=int, default=4096, help="side of the huge image")
    parser.add_argument("--parity-step", type=int, default=1, help="take every so many pixels")
    arguments = parser.parse_args()
    if arguments.what == "pack":
        data.pack(arguments.shared, arguments.data)
    elif arguments.what == "reference":
        path = arguments.data / "reference.npz"
        parity.write_reference(arguments.data, path, arguments.parity_step)
    else:
        summary(measure(arguments))


if __name__ == "__main__":
    main()
