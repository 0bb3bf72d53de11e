"""Run benchmarks, print Markdown, keep results as JSON: ``python -m benchmarks``."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

from benchmarks import summary, tables
from benchmarks.harness import NotAtHandError, keep, machine

ALL = (
    "ordered_filter",
    "converged",
    "plain_filter",
    "mean_field",
    "certified",
    "methods",
    "frank_wolfe",
    "distributions",
    "settings",
    "many_labels",
    "folder",
    "proximal",
    "units",
    "threads",
    "roofline",
    "scaling",
    "memory",
    "accuracy",
    "app",
)


def main() -> int:
    """Run the selected benchmarks; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(ALL)}; all if none"
    )
    parser.add_argument("--scale", choices=("small", "medium", "full"), default="medium")
    parser.add_argument("--output", type=Path, default=tables.RESULTS, help="folder of results")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(ALL)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(ALL)}")
    for name in arguments.names or ALL:
        about = machine()
        started = time.perf_counter()
        try:
            section = importlib.import_module(f"benchmarks.{name}").run(arguments.scale)
        except NotAtHandError as missing:
            print(f"{name} left out: {missing}\n", flush=True)
            continue
        print(f"{section.markdown()}\n({time.perf_counter() - started:.0f} s)\n", flush=True)
        command = f"python -m benchmarks {name} --scale {arguments.scale}"
        keep(name, section, command, about, arguments.output)
    if arguments.output == tables.RESULTS:
        tables.main()
        print(summary.page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
