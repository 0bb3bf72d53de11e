"""Options that several commands share."""

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, get_origin

import typer

from densecrf.cached import cached_property
from densecrf.cli.reports import describe, require
from densecrf.io import PALETTES
from densecrf.io.opening import open_regular
from densecrf.model.parameters import Parameters, read_parameters
from densecrf.model.presets import PRESETS
from densecrf.model.reading import KINDS
from densecrf.model.specification import KEYWORDS, Specification
from densecrf.native import core
from densecrf.solvers import METHODS
from densecrf.solvers.registry import LP_GAP
from densecrf.validation import check_choice

__all__ = ["ModelOptions", "SolveOptions", "check_gap", "require_extras", "with_options"]

#: `typer.Option` in one of the panels of the help.
input_option, model_option, solver_option, output_option = (
    partial(typer.Option, rich_help_panel=panel) for panel in ("Input", "Model", "Solver", "Output")
)


def _one_of(
    name: str, text: str, choices: tuple[str, ...], listed: str | None = None
) -> dict[str, Any]:
    """Return the arguments of `typer.Option` that explain, check and complete one of several names.

    `listed` replaces the list of names in the help.
    """

    def known(value: str | None) -> str | None:
        try:
            return None if value is None else check_choice(name, value, choices)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error

    return {
        "help": f"{text}: {listed or ', '.join(choices)}.",
        "callback": known,
        "autocompletion": lambda: list(choices),
        "metavar": name.upper(),
    }


def check_gap(gap: float | None) -> float | None:
    """Return the given gap, a fraction, or refuse it."""
    if gap is not None and not 0 <= gap < 1:
        raise typer.BadParameter(f"{gap:g} is not a fraction from 0 up to 1; for 0.1 % say 0.001")
    return gap


Images = Annotated[
    list[str],
    typer.Argument(help="Images: files, folders or quoted patterns (*.jpg).", metavar="IMAGE"),
]
Image = Annotated[Path, typer.Argument(help="The image.")]
TimeLimit = Annotated[
    float | None,
    solver_option(help="Seconds per image and method; the best labelling so far is kept."),
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
Jobs = Annotated[
    int, output_option("--jobs", "-j", help="Images processed at the same time.", min=1)
]
JobsOnDevices = Annotated[
    int | None,
    output_option(
        *("--jobs", "-j"),
        help="Images processed at the same time. Default: 1; on a GPU 16, which it solves "
        "together.",
        min=1,
    ),
]
Json = Annotated[bool, output_option("--json", help="Print JSON on standard output.")]
Quiet = Annotated[bool, output_option("--quiet", "-q", help="Show no progress.")]


def require_extras(device: str | None, scheduler: str | None) -> None:
    """End the command before it starts if a library of these options is missing."""
    if device is not None:
        require("--device", "torch")
    if scheduler is not None:
        require("--scheduler", "distributed")


def _parse_axis(axis: str | None) -> int | None:
    named = {None: None, "first": 0, "last": -1}
    try:
        return named[axis] if axis in named else int(axis or "")
    except ValueError as error:
        reason = f"{axis!r} is not first, last or a number"
        raise typer.BadParameter(reason, param_hint="--axis") from error


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The energy, and how the files that it is made from are read; fields as the options."""

    preset: Annotated[
        str,
        model_option(
            **_one_of("preset", "Parameters of the kernels", tuple(PRESETS), "see densecrf presets")
        ),
    ] = "default"
    params: Annotated[
        Path | None,
        model_option(
            "--model",
            "--params",
            help="Model file of `densecrf adapt` or `fit`, instead of --preset.",
        ),
    ] = None
    strength: Annotated[float, model_option(help="Factor of both kernel weights.", min=0)] = 1.0
    kind: Annotated[
        str | None,
        input_option(
            **_one_of(
                "kind",
                "Kind of --probs, if it cannot be inferred",
                tuple(kind for kind in KINDS if kind != "labels"),
            )
        ),
    ] = None
    axis: Annotated[
        str | None,
        input_option(
            help="Label axis of --probs, if it cannot be inferred: first, last or a number."
        ),
    ] = None
    n_labels: Annotated[int | None, input_option(help="Number of labels.", min=2)] = None
    background: Annotated[
        float | None,
        input_option(
            help="Read --probs as activation maps of the classes, from 0 to 1, with this score "
            "of the background, which becomes label 0."
        ),
    ] = None
    background_power: Annotated[
        float | None,
        input_option(help="The same, with (1 - largest map) to this power as the background."),
    ] = None
    void: Annotated[
        list[int] | None,
        input_option(
            help="Value of unlabelled pixels in --labels and --scribbles. Default: 255, unless "
            "0 and 255 are the only labels: a mask. Repeatable."
        ),
    ] = None
    image_range: Annotated[
        tuple[float, float] | None,
        input_option(
            help="Pixel values of black and white, if not 0 and 255.", metavar="BLACK WHITE"
        ),
    ] = None
    palette: Annotated[
        str | None,
        input_option(**_one_of("palette", "Classes and colours of label images", tuple(PALETTES))),
    ] = None
    page: Annotated[int | None, input_option(help="Page of a multi-page TIFF, from 0.", min=0)] = (
        None
    )
    bands: Annotated[
        str | None,
        input_option(
            help="Bands to use, in this order, from 1: 4,3,2. Default: all.", metavar="BANDS"
        ),
    ] = None
    sigma: Annotated[
        float | None, model_option(help="Standard deviation of the spatial kernel, in pixels.")
    ] = None
    weight: Annotated[float | None, model_option(help="Weight of the spatial kernel.")] = None
    sigma_xy: Annotated[
        float | None,
        model_option(help="Standard deviation of positions in the bilateral kernel, in pixels."),
    ] = None
    sigma_color: Annotated[
        float | None,
        model_option(help="Standard deviation of colours, 0 to 255, in the bilateral kernel."),
    ] = None
    bilateral_weight: Annotated[
        float | None, model_option(help="Weight of the bilateral kernel.")
    ] = None
    confidence: Annotated[
        float | None, model_option(help="Probability that a hard label is right.")
    ] = None
    scale_sigmas: Annotated[
        bool | None,
        model_option(
            "--scale-sigmas/--fixed-sigmas",
            help="Scale standard deviations of positions with the image size, or keep them in "
            "pixels. Default: as the model says.",
        ),
    ] = None
    #: What `densecrf segment` made of the model, which is no option.
    adapted: Parameters | None = None

    def __post_init__(self) -> None:
        """Find the model, and refuse what cannot be used."""
        if self.background is not None and self.background_power is not None:
            raise typer.BadParameter("give --background or --background-power, not both")
        try:
            self.specification, self.band_numbers  # noqa: B018
        except (OSError, ValueError) as error:
            raise typer.BadParameter(describe(error), param_hint="--model") from error

    @cached_property
    def specification(self) -> Specification:
        """The energy, and how arrays are read."""
        model: Any = self.preset
        if self.adapted is not None:
            model = self.adapted
        elif self.params is not None:
            open_regular(self.params).close()
            model = read_parameters(self.params)
        same = {name: getattr(self, name) for name in KEYWORDS if hasattr(self, name)}
        void = tuple(self.void) if self.void else "auto"
        return Specification(
            **same | {"model": model, "axis": _parse_axis(self.axis), "void": void}
        )

    @cached_property
    def band_numbers(self) -> tuple[int, ...] | None:
        """The bands to use, from 1; None for all."""
        try:
            return None if self.bands is None else tuple(map(int, self.bands.split(",")))
        except ValueError as error:
            reason = f"{self.bands!r} are not numbers with commas, such as 4,3,2"
            raise typer.BadParameter(reason, param_hint="--bands") from error


@dataclass(frozen=True, kw_only=True)
class SolveOptions:
    """The arguments of `densecrf.DenseCRF.solve`; fields as the options."""

    method: Annotated[
        str, solver_option(**_one_of("method", "Method to minimise the energy", METHODS))
    ] = "lp"
    gap: Annotated[
        float | None,
        solver_option(
            help="Stop when the energy is proven to be within this fraction of the optimum; 0: at "
            f"the end of the method. Default: {LP_GAP:g} for lp.",
            callback=check_gap,
        ),
    ] = None
    time_limit: TimeLimit = None
    max_iterations: MaxIterations = None
    threads: Threads = None
    device: Device = None

    def shared_by(self, jobs: int) -> "SolveOptions":
        """Return the options of each of several jobs, with its share of the threads."""
        if jobs == 1 or self.threads is not None:
            return self
        return replace(self, threads=max(1, core().available_threads() // jobs))

    def keywords(self) -> dict[str, Any]:
        """Return the keyword arguments."""
        return {name: value for name, value in asdict(self).items() if name != "method"}


def with_options(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace each argument of a command that is a group of options by these options.

    A group is a dataclass, and its annotated fields are the options. Those in `without` are left
    out.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command)
        parameters: list[inspect.Parameter] = []
        groups: dict[str, tuple[Any, list[str]]] = {}
        for parameter in own.parameters.values():
            group: Any = parameter.annotation
            if is_dataclass(parameter.annotation):
                options = [
                    option
                    for option in inspect.signature(group).parameters.values()
                    if get_origin(option.annotation) is Annotated and option.name not in without
                ]
                groups[parameter.name] = group, [option.name for option in options]
                parameters += options
            else:
                parameters.append(parameter)

        @wraps(command)
        def run(**given: Any) -> None:
            made = {
                group: make(**{name: given.pop(name) for name in names})
                for group, (make, names) in groups.items()
            }
            command(**given, **made)

        run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate
