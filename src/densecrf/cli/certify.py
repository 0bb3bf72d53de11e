"""``densecrf certify``: how far from optimal a labelling is."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from densecrf.cli import options as o
from densecrf.cli.inputs import ImageFiles, Sources, find_image, load, read_labelling
from densecrf.cli.outputs import check_outputs
from densecrf.cli.reports import (
    collecting_warnings,
    fail,
    output,
    print_json,
    print_notes,
    progress_bar,
    reporting_errors,
)
from densecrf.model.crf import DenseCRF
from densecrf.model.unaries import FORBIDDEN, read_void, whole_numbers
from densecrf.problem.certificate import CertificateError
from densecrf.problem.certificate import certify as certify_labels
from densecrf.solvers.result import Result

__all__ = ["certify"]


@o.with_options("confidence", "labels")
def certify(
    image: o.Image,
    *,
    labels: Annotated[
        Path | None,
        o.input_option(
            help="The labelling to certify: .png or .npy. With --verify, that of the certificate "
            "by default."
        ),
    ] = None,
    sources: Sources,
    budget: Annotated[
        int,
        o.solver_option(help="Filter calls for the bound; more make it tighter.", min=1),
    ] = 50,
    save: Annotated[
        Path | None,
        o.output_option(help="Write the certificate, with its dual potentials, to this .npz."),
    ] = None,
    verify: Annotated[
        Path | None,
        o.input_option(
            help="Check a certificate of --save (or of Result.save): recompute energy and bound in "
            "plain NumPy and float64."
        ),
    ] = None,
    model: o.ModelOptions,
    as_json: o.Json = False,
) -> None:
    """Print a bound on the distance of any labelling from the global optimum.

    Void pixels of --labels (255, or --void) get the labels of lowest energy that are found, with
    all others fixed; the certificate is for the completed labelling.

    For example:

    densecrf certify photo.jpg --probs photo.npy --labels result.png --save proof.npz

    densecrf certify photo.jpg --probs photo.npy --verify proof.npz
    """
    if sources.probs is None and sources.scribbles is None:
        raise typer.BadParameter(
            "the energy needs --probs (or --scribbles); --labels is the labelling to judge"
        )
    if labels is None and verify is None:
        raise typer.BadParameter("--labels is missing: the labelling to judge")
    files = find_image(image, sources)
    if verify is not None:
        if save is not None:
            raise typer.BadParameter("--verify checks a certificate, --save makes one: give one")
        _verify(files, model, labels, verify, as_json)
        return
    assert labels is not None
    if save is not None:
        check_outputs([(save, image)], [*files.paths, labels], "give another name to --save")
    with (
        reporting_errors(),
        collecting_warnings() as collect,
        progress_bar("bound", not as_json) as advance,
        collect() as collected,
    ):
        advance(0, None, image.name)
        crf = load(files, model).crf
        judged, void = _completed(crf, *_labelling(crf, labels, model))
        certificate = certify_labels(crf, judged, budget=budget)
        if save is not None:
            certificate.proof.save(save)
    if void:
        collected.append(f"{void} void pixels received the labels of lowest energy found")
    print_notes(image.name, collected)
    if as_json:
        names = ("energy", "lower_bound", "gap", "better_energy", "excess", "calls", "seconds")
        numbers = {name: getattr(certificate, name) for name in names}
        numbers["proven_share"] = float(certificate.proven.mean())
        names_of = {"image": str(image), "labels": str(labels)}
        print_json({**names_of, **numbers, "void_pixels": void, "warnings": collected})
    else:
        output.print(str(certificate))


def _verify(
    given: ImageFiles, model: o.ModelOptions, labels: Path | None, path: Path, as_json: bool
) -> None:
    """Recompute a certificate's numbers; exit with 1 if they differ from the stated ones."""
    with (
        reporting_errors(CertificateError),
        collecting_warnings() as collect,
        collect() as collected,
    ):
        crf = load(given, model).crf
        result = Result.load(path)
        found = result.verify(crf)
        stated_proofs = (result.possible, result.margin)
        differ = found.disagreements(result.energy, result.lower_bound, *stated_proofs)
        if labels is not None:
            differ += _other_labels(crf, labels, result, model)
    print_notes(given.image.name, collected)
    if as_json:
        numbers = {"energy": found.energy, "lower_bound": found.lower_bound, "gap": found.gap}
        stated = {"energy": result.energy, "lower_bound": result.lower_bound, "gap": result.gap}
        files = {"image": str(given.image), "certificate": str(path)}
        print_json({**files, **numbers, "stated": stated, "disagreements": differ})
    else:
        lines = (
            f"energy       {found.energy:,.6f}   (stated {result.energy:,.6f})",
            f"lower bound  {found.lower_bound:,.6f}   (stated {result.lower_bound or 0:,.6f})",
            f"certificate  at most {100 * found.gap:.3g} % above the global optimum, "
            + ("recomputed" if not differ else "recomputed: not as stated"),
        )
        output.print("\n".join(lines))
    if differ:
        raise fail(f"{path}: " + "; ".join(differ))


def _labelling(
    crf: DenseCRF, path: Path, model: o.ModelOptions
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Read a labelling and the mask of its void pixels."""
    labels = whole_numbers(str(path), read_labelling(path, model.palette))
    labels, void = read_void(labels, crf.n_labels, model.specification.void)
    return labels, np.isin(labels, void)


def _other_labels(crf: DenseCRF, labels: Path, result: Result, model: o.ModelOptions) -> list[str]:
    """Report whether a labelling, void pixels aside, differs from a certificate's."""
    given, empty = _labelling(crf, labels, model)
    if given.shape != crf.shape:
        return [f"{labels} has the shape {given.shape}, the image {crf.shape}"]
    other = int(((given != result.labels) & ~empty).sum())
    return [f"{labels} differs from its labels at {other} pixels"] if other else []


def _completed(
    crf: DenseCRF, labels: npt.NDArray[Any], empty: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[Any], int]:
    """Return the labelling with a label for each void pixel, and their number.

    Unary costs fix the labels of the other pixels, as for seeds.
    """
    count = len(crf.unary)
    if labels.shape != crf.shape or not empty.any() or empty.all():
        return labels, 0  # the library reports the error
    known = np.where(empty, 0, labels)
    crf.check_labels(known)
    other = np.arange(count)[:, None] != known.reshape(1, -1)
    unary = np.where(other & ~empty.reshape(1, -1), np.float32(FORBIDDEN), crf.unary)
    fixed = DenseCRF(unary.reshape(count, *crf.shape), crf.kernels)
    found = fixed.solve("lp").labels
    return np.where(empty, found, labels), int(empty.sum())
