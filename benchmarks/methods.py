"""All methods on the images that the paper's authors published unaries for, and on hard MSRC ones.

    python -m benchmarks.methods --data ../shared/data --write docs/methods.md

Energies, bounds, gaps, filter calls and seconds, all of one declared energy. A method's seconds
include its starting point but not the construction of the lattices, which all share.
"""

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.harness import DC, MF, published, two_kernels
from densecrf import METHODS, DenseCRF

MARK = "<!-- tables: written by benchmarks.methods -->"
HARD = ("10_19_s", "12_5_s", "15_8_s", "18_10_s", "1_2_s", "3_6_s", "6_21_s", "9_15_s")


def problems(data: Path, hard: tuple[str, ...]) -> Iterator[tuple[str, DenseCRF]]:
    """Yield the settings with a title each."""
    for name, parameters, title in (
        ("2_14_s", DC, "DC parameters"),
        ("2_14_s", MF, "MF parameters"),
        ("4_11_s", DC, "DC parameters"),
    ):
        for normalization in ("symmetric", "none"):
            heading = f"{name}, {title}, the authors' unaries, normalization {normalization!r}"
            yield heading, published(name, data).model(normalization, parameters)
    for name in hard:
        from PIL import Image

        image = np.array(Image.open(data / "msrc" / "images" / f"{name}.png"))
        logits = np.load(data / "msrc" / "logits" / f"{name}.npz")["logits"]
        kernels = two_kernels(image, (3, 3, 60, 13, 10))
        heading = f"{name}, network logits, spatial 3/3, bilateral 60/13/10"
        yield heading, DenseCRF.from_logits(logits, kernels, axis=-1)


def table(crf: DenseCRF, methods: tuple[str, ...]) -> list[str]:
    """Return a Markdown table of all methods on one model."""
    lines = [
        "| method | energy | lower bound | gap | ordered calls | plain calls | seconds |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    assert crf.pairwise.mass is not None  # builds the lattices, which all methods share
    for method in methods:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = crf.solve(method)
        bound = "" if result.lower_bound is None else f"{result.lower_bound:,.0f}"
        gap = "" if result.gap is None else f"{100 * result.gap:.3f} %"
        trace = result.trace
        lines.append(
            f"| `{method}` | {result.energy:,.0f} | {bound} | {gap} | {trace.ordered_calls[-1]} "
            f"| {trace.plain_calls[-1]} | {result.seconds:.2f} |"
        )
    label, constant = int(crf.constant_energies().argmin()), float(crf.constant_energies().min())
    lines.append(f"| *all pixels labelled {label}* | {constant:,.0f} | | | | | |")
    return lines


def main() -> None:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--hard", nargs="*", default=list(HARD))
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    lines: list[str] = []
    for heading, crf in problems(arguments.data, tuple(arguments.hard)):
        lines += [f"### {heading}", "", *table(crf, tuple(arguments.methods)), ""]
        print("\n".join(lines[-len(arguments.methods) - 6 :]), flush=True)
    if arguments.write:
        page = arguments.write.read_text() if arguments.write.exists() else ""
        head, mark, _ = page.partition(MARK)
        arguments.write.write_text(f"{head}{mark or MARK}\n\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
