"""Options that several commands share."""

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from densecrf.cli.reports import describe, require
from densecrf.io import PALETTES
from densecrf.io.opening import open_regular
from densecrf.model.parameters import read_parameters
from densecrf.model.presets import PRESETS
from densecrf.model.specification import Specification
from densecrf.model.unaries import KINDS
from densecrf.solvers import METHODS
from densecrf.solvers.registry import LP_GAP
from densecrf.validation import check_choice

__all__ = [
    "ModelOptions",
    "SolveOptions",
    "check_gap",
    "require_extras",
    "with_model",
    "with_options",
    "with_solver",
]

#: `typer.Option` in one of the panels of the help.
input_option, model_option, solver_option, output_option = (
    partial(typer.Option, rich_help_panel=panel) for panel in ("Input", "Model", "Solver", "Output")
)


def _one_of(name: str, text: str, choices: tuple[str, ...]) -> dict[str, Any]:
    """Return the arguments of `typer.Option` to explain, check and complete one of some names."""

    def known(value: str | None) -> str | None:
        try:
            return None if value is None else check_choice(name, value, choices)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error

    return {
        "help": f"{text}: {', '.join(choices)}.",
        "callback": known,
        "autocompletion": lambda: list(choices),
        "metavar": name.upper(),
    }


def check_gap(gap: float | None) -> float | None:
    """Return the gap that was given, which is a fraction."""
    if gap is not None and not 0 <= gap < 1:
        raise typer.BadParameter(f"{gap:g} is not a fraction from 0 up to 1; for 0.1 % say 0.001")
    return gap


Images = Annotated[
    list[str],
    typer.Argument(help="Images: files, folders or quoted patterns (*.jpg).", metavar="IMAGE"),
]
Image = Annotated[Path, typer.Argument(help="The image.")]
Probs = Annotated[
    str | None,
    input_option(
        help="Network output: probabilities, logits or energies (.npy, .npz or .unary). For "
        "several images: a folder with one file per image, or a pattern with {name}."
    ),
]
Labels = Annotated[
    str | None,
    input_option(help="Hard labels (.png or .npy) instead of --probs: a file, folder or pattern."),
]
Scribbles = Annotated[
    str | None,
    input_option(
        help="Strokes (.png or .npy; --void elsewhere): a file, folder or pattern. With --probs "
        "they fix pixels; alone, a colour model labels the other pixels."
    ),
]
Kind = Annotated[
    str | None,
    input_option(
        **_one_of(
            "kind",
            "Kind of --probs, if it cannot be inferred",
            tuple(kind for kind in KINDS if kind != "labels"),
        )
    ),
]
Axis = Annotated[
    str | None,
    input_option(help="Label axis of --probs, if it cannot be inferred: first, last or a number."),
]
NLabels = Annotated[int | None, input_option(help="Number of labels.", min=2)]
Void = Annotated[
    list[int] | None,
    input_option(
        help="Value of unlabelled pixels in --labels and --scribbles. Default: 255, but labels of "
        "0 and 255 alone are a mask. Repeatable."
    ),
]
ImageRange = Annotated[
    tuple[float, float] | None,
    input_option(help="Pixel values of black and white, if not 0 and 255.", metavar="BLACK WHITE"),
]
Page = Annotated[int | None, input_option(help="Page of a multi-page TIFF, from 0.", min=0)]
Bands = Annotated[
    str | None,
    input_option(
        help="Bands to use, in this order, from 1: 4,3,2. Default: all.",
        metavar="BANDS",
    ),
]
PaletteOption = Annotated[
    str | None,
    input_option(
        "--palette", **_one_of("palette", "Classes and colours of label images", tuple(PALETTES))
    ),
]
PresetOption = Annotated[
    str, model_option("--preset", **_one_of("preset", "Parameters of the kernels", tuple(PRESETS)))
]
ParamsOption = Annotated[
    Path | None,
    model_option(
        "--model",
        "--params",
        help="Model file of `densecrf adapt` or `fit`, instead of --preset.",
    ),
]
Sigma = Annotated[
    float | None, model_option(help="Standard deviation of the spatial kernel, in pixels.")
]
Weight = Annotated[float | None, model_option(help="Weight of the spatial kernel.")]
SigmaXy = Annotated[
    float | None,
    model_option(help="Standard deviation of positions in the bilateral kernel, in pixels."),
]
SigmaColor = Annotated[
    float | None,
    model_option(help="Standard deviation of colours, 0 to 255, in the bilateral kernel."),
]
BilateralWeight = Annotated[float | None, model_option(help="Weight of the bilateral kernel.")]
Confidence = Annotated[float | None, model_option(help="Probability that a hard label is right.")]
Strength = Annotated[float, model_option(help="Factor of both kernel weights.", min=0)]
ScaleSigmas = Annotated[
    bool | None,
    model_option(
        "--scale-sigmas/--fixed-sigmas",
        help="Scale standard deviations of positions with the image size, or keep them in pixels. "
        "Default: as the model says.",
    ),
]

MethodOption = Annotated[
    str, solver_option("--method", **_one_of("method", "Method to minimise the energy", METHODS))
]
Gap = Annotated[
    float | None,
    solver_option(
        help="Stop when the energy is proven to be within this fraction of the optimum; 0: at the "
        f"method's own end. Default: {LP_GAP:g} for lp.",
        callback=check_gap,
    ),
]
TimeLimit = Annotated[
    float | None,
    solver_option(help="Seconds per image and method; then the best labelling so far is kept."),
]
MaxIterations = Annotated[int | None, solver_option(help="Maximum number of iterations.", min=0)]
Threads = Annotated[int | None, solver_option(help="Maximum number of threads per image.", min=1)]
Device = Annotated[
    str | None,
    solver_option(
        help="PyTorch device to solve on, such as cpu or cuda. Default: the compiled core. "
        "`segment` accepts several, such as cuda:0,cuda:1, and runs one process per device."
    ),
]
Out = Annotated[
    Path,
    output_option(
        "--out",
        "-o",
        help="Folder for the results or, for one image, the label map (.png).",
    ),
]
Overlays = Annotated[
    bool,
    output_option(
        "--overlay/--no-overlay", help="Write NAME.overlay.png, the labels over the image."
    ),
]
Marginals = Annotated[bool, output_option("--marginals", help="Write the marginals, NAME.npz.")]
Jobs = Annotated[
    int, output_option("--jobs", "-j", help="Images processed at the same time.", min=1)
]
Force = Annotated[
    bool, output_option("--force", help="Process images again, even if their results exist.")
]
Json = Annotated[bool, output_option("--json", help="Print JSON on standard output.")]
Quiet = Annotated[bool, output_option("--quiet", "-q", help="Show no progress.")]


def require_extras(device: str | None, scheduler: str | None) -> None:
    """End the command before it works, where a library of these options is missing."""
    if device is not None:
        require("--device", "torch")
    if scheduler is not None:
        require("--scheduler", "distributed")


def _parse_axis(axis: str | None) -> int | None:
    """Return the number of the axis that the user named."""
    named = {None: None, "first": 0, "last": -1}
    if axis in named:
        return named[axis]
    try:
        return int(axis or "")
    except ValueError as error:
        raise typer.BadParameter(
            f"{axis!r} is not first, last or a number", param_hint="--axis"
        ) from error


def _parse_bands(bands: str | None) -> tuple[int, ...] | None:
    try:
        return None if bands is None else tuple(int(band) for band in bands.split(","))
    except ValueError as error:
        raise typer.BadParameter(
            f"{bands!r} are not numbers with commas, such as 4,3,2", param_hint="--bands"
        ) from error


@dataclass(frozen=True)
class ModelOptions:
    """The energy, and how the files that it is made from are read; fields as the options."""

    specification: Specification
    palette: str | None = None
    page: int | None = None
    bands: tuple[int, ...] | None = None
    params: str | None = None

    @classmethod
    def of(
        cls,
        *,
        preset: str,
        params: Path | None,
        axis: str | None,
        void: list[int] | None,
        palette: str | None,
        page: int | None,
        bands: str | None,
        **given: Any,
    ) -> "ModelOptions":
        """Return the options of `with_model`."""
        try:
            if params is not None:
                open_regular(params).close()
            specification = Specification(
                model=preset if params is None else read_parameters(params),
                axis=_parse_axis(axis),
                void=tuple(void) if void else "auto",
                **given,
            )
        except (OSError, ValueError) as error:
            raise typer.BadParameter(describe(error), param_hint="--model") from error
        file = None if params is None else str(params)
        return cls(specification, palette, page, _parse_bands(bands), file)


def _declared(
    *,
    preset: PresetOption = "default",
    params: ParamsOption = None,
    strength: Strength = 1.0,
    kind: Kind = None,
    axis: Axis = None,
    n_labels: NLabels = None,
    void: Void = None,
    image_range: ImageRange = None,
    palette: PaletteOption = None,
    page: Page = None,
    bands: Bands = None,
    sigma: Sigma = None,
    weight: Weight = None,
    sigma_xy: SigmaXy = None,
    sigma_color: SigmaColor = None,
    bilateral_weight: BilateralWeight = None,
    confidence: Confidence = None,
    scale_sigmas: ScaleSigmas = None,
) -> None:
    """Declare the options that make up `ModelOptions`."""


def with_model(command: Callable[..., None], without: str = "") -> Callable[..., None]:
    """Let a command have the options of a model, and get the `ModelOptions` as `model`.

    The option `without` would mean nothing to it.
    """
    return with_options(command, "model", _declared, ModelOptions.of, (without,))


def with_options(
    command: Callable[..., None],
    keyword: str,
    declared: Callable[..., Any],
    make: Callable[..., Any],
    without: tuple[str, ...] = (),
) -> Callable[..., None]:
    """Let a command have the options that make up one of its arguments.

    Parameters
    ----------
    command
        The command, without them.
    keyword
        The argument, keyword-only; the options take its place.
    declared
        Has the options as its arguments.
    make
        Makes the argument of them.
    without
        Options that this command does not have.
    """
    own = inspect.signature(command)
    arguments = inspect.signature(declared).parameters.values()
    options = [option for option in arguments if option.name not in without]
    parameters: list[inspect.Parameter] = []
    for parameter in own.parameters.values():
        parameters += options if parameter.name == keyword else [parameter]

    @wraps(command)
    def run(**given: Any) -> None:
        made = make(**{option.name: given.pop(option.name) for option in options})
        command(**given, **{keyword: made})

    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


@dataclass(frozen=True, kw_only=True)
class SolveOptions:
    """The arguments of `densecrf.DenseCRF.solve`; fields as the options."""

    method: MethodOption = "lp"
    gap: Gap = None
    time_limit: TimeLimit = None
    max_iterations: MaxIterations = None
    threads: Threads = None
    device: Device = None

    def keywords(self) -> dict[str, Any]:
        """Return the keyword arguments."""
        return {name: value for name, value in asdict(self).items() if name != "method"}


def with_solver(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command have the options of a solver, and get the `SolveOptions` as `solver`."""
    return with_options(command, "solver", SolveOptions, SolveOptions)
