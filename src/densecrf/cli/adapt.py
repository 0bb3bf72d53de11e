"""``densecrf adapt``: label costs for a folder of images, from the network's output alone."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from densecrf.cli import options as o
from densecrf.cli.batch import BatchOutcome, Watch, in_processes, run_batch
from densecrf.cli.inputs import ImageFiles, Sources, find_images, load
from densecrf.cli.outputs import check_outputs
from densecrf.cli.reports import console, fail, finish, output, print_failures, print_json
from densecrf.learning.adaptation import adapted, look_at, unadapted
from densecrf.model.parameters import Parameters, write_parameters

__all__ = ["ENOUGH", "Adapt", "adapt", "adapt_to"]

#: The number of images at which `densecrf segment` adapts the default model to its folder.
ENOUGH = 5
MEAN_FIELD = ("mf5", "mf")

Adapt = Annotated[
    bool | None,
    o.model_option(
        "--adapt/--no-adapt",
        help=f"Compute label costs from all images first. Default: with {ENOUGH} or more.",
    ),
]


@o.with_options("scribbles")
def adapt(
    images: o.Images,
    *,
    sources: Sources,
    out: Annotated[Path, typer.Option("--out", "-o", help="The model file.")] = Path(
        "adapted.json"
    ),
    model: o.ModelOptions,
    jobs: o.Jobs = 1,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Adapt a model to a kind of images from a network's output; no ground truth is needed.

    Each image is refined; the strength is set so that no label that half of the images show loses
    more than an eighth of its evidence. `densecrf segment --model` uses the file, and adapts to a
    folder of several images without it. Ctrl-C writes the model of the images so far.

    For example:

    densecrf adapt images/ --probs logits/ --axis last --out street.json
    """
    todo = find_images(images, sources)
    inputs = [path for image in todo for path in image.paths]
    check_outputs([(out, "the model")], inputs, "choose another --out")
    progress = not (quiet or as_json)
    found, batch = adapt_to(model, todo, o.SolveOptions(), jobs=jobs, progress=progress)
    if found is None:
        print_failures(batch.failures, len(batch.results))
        if batch.interrupted:
            raise fail("interrupted before the first image was done; nothing is written", 130)
        raise fail("no image could be used, or they have different numbers of labels")
    found = replace(found, **model.specification.numbers)
    write_parameters(out, found)
    if as_json:
        print_json({"file": str(out), **found.provenance})
    else:
        told = f"strength {found.provenance['strength']:.2f} of the start's"
        output.print(f"{told}, from {found.provenance['images']} images")
        console.print(f"Written: {out}; use it with --model {out}")
    seen = f" after {len(batch.results)} of {len(todo)} images."
    finish(batch.failures, len(batch.results), seen if batch.interrupted else "")


def adapt_to(
    options: o.ModelOptions,
    images: Sequence[ImageFiles],
    solver: o.SolveOptions,
    *,
    jobs: int = 1,
    progress: bool = False,
) -> tuple[Parameters | None, BatchOutcome]:
    """Return the model adapted to all images, and the batch of all images.

    The model is None if no image could be used or numbers of labels differ. For mean field, what
    it overrules is looked at, and for other methods what the linear program does.
    """
    start = unadapted(options.specification.model)
    plain = replace(options, adapted=start, strength=1.0)
    method, threads = "lp", solver.shared_by(jobs).threads
    if solver.method in MEAN_FIELD:
        method = solver.method
    work = partial(_look, plain, method, threads)
    batch = run_batch(
        images,
        lambda image: image.name,
        in_processes(work, jobs, len(images), threads) or work,
        jobs=jobs,
        progress=progress,
    )
    found = [result["found"] for result in batch.results.values()]
    if len({len(seen.shares) for seen in found}) != 1:
        return None, batch
    return adapted(start, found), batch


def _look(
    model: o.ModelOptions, method: str, threads: int | None, image: ImageFiles, watch: Watch
) -> dict[str, Any]:
    watch.report(f"{image.name}: adapting")
    return {"found": look_at(load(image, model).crf, threads, method=method)}
