"""Run benchmarks, print Markdown, and keep it in RESULTS.md: ``python -m benchmarks``."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import time
from pathlib import Path

from benchmarks.harness import NotAtHandError, machine

ALL = (
    "ordered_filter",
    "converged",
    "plain_filter",
    "mean_field",
    "certified",
    "distributions",
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
RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
HEADER = """# Results

Written by `make bench`; each section names its machine. Absolute times differ from machine to
machine and run to run: compare ratios within a run.

"""


def main() -> int:
    """Run the selected benchmarks; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(ALL)}; all if none"
    )
    parser.add_argument("--scale", choices=("small", "medium", "full"), default="medium")
    parser.add_argument("--output", type=Path, default=RESULTS, help="Markdown file to update")
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
        section.text += f"\n\n{about}; scale {arguments.scale}."
        text = section.markdown()
        print(f"{text}\n({time.perf_counter() - started:.0f} s)\n", flush=True)
        keep(arguments.output, section.title, text)
    return 0


def keep(path: Path, title: str, text: str) -> None:
    """Put a section into the file in the place of the one of the same title."""
    old = path.read_text("utf-8") if path.exists() else HEADER
    parts = re.split(r"^(?=## )", old, flags=re.MULTILINE)
    heading = f"## {title}\n"
    kept = [part for part in parts if not part.startswith(heading)]
    place = next((i for i, part in enumerate(parts) if part.startswith(heading)), len(kept))
    kept.insert(place, text.rstrip() + "\n\n")
    path.write_text("".join(kept).rstrip() + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
