"""Options of the commands that run over a data set, and the plan that they describe."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from densecrf.cli import options as o
from densecrf.cli.inputs import Classes, Data, DataKind, Split, open_dataset
from densecrf.cli.outputs import check_outputs
from densecrf.cli.reports import console, describe, fail, print_json
from densecrf.model.parameters import read_parameters
from densecrf.solvers import METHODS
from experiments.protocols import PARAMETERS, PROTOCOLS, get_parameters, get_protocol
from experiments.runner import Plan, make_plan

__all__ = [
    "Every",
    "Gap",
    "ImageNames",
    "Out",
    "PlanOptions",
    "limits_of",
    "tell_picture",
]

USED_METHODS = "unary,mf5,mf,dc-neg,prox-lp-acc,lp"
LIMITS = ("gap", "time_limit", "max_iterations")

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of the results and records.")]
ProtocolName = Annotated[
    str, typer.Option("--protocol", help=f"Which energies: {', '.join(PROTOCOLS)}.")
]
Params = Annotated[
    str | None,
    typer.Option(
        help="Parameters: a file of `tune` or `densecrf fit`, or one of "
        f"{', '.join(PARAMETERS)}. By default those that the protocol was made for."
    ),
]
Methods = Annotated[str, typer.Option(help=f"Methods, separated by commas: {', '.join(METHODS)}.")]
Images = Annotated[str | None, typer.Option(help="Only these images, separated by commas.")]
ImageNames = Annotated[str, typer.Option(help="Images, separated by commas.")]
Every = Annotated[int, typer.Option(help="Only every n-th image.", min=1)]
Gap = Annotated[
    float | None,
    o.solver_option(help="Stop within this fraction of the optimum.", callback=o.check_gap),
]


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Which images, methods and energies; fields as the options."""

    data: Data
    protocol: ProtocolName = "shared"
    params: Params = None
    methods: Methods = USED_METHODS
    split: Split = None
    images: Images = None
    every: Every = 1
    kind: DataKind = None
    classes: Classes = None
    threads: o.Threads = None
    gap: Gap = None
    time_limit: o.TimeLimit = None
    max_iterations: o.MaxIterations = None

    def plan(self) -> Plan:
        """Return the plan that they describe, or end the command with the reason."""
        try:
            protocol = get_protocol(self.protocol)
            label = self.params or protocol.default
            from_file = label not in PARAMETERS and Path(label).is_file()
            parameters = read_parameters(label) if from_file else get_parameters(label)
            dataset = open_dataset(self.data, self.kind, self.classes)
            names = dataset.names(self.split)
            if self.images is not None:
                names = tuple(name.strip() for name in self.images.split(","))
            return make_plan(
                dataset,
                protocol,
                parameters,
                label=Path(label).stem if from_file else label,
                images=names[:: self.every],
                methods=tuple(name.strip() for name in self.methods.split(",")),
                limits=limits_of(self),
                threads=self.threads,
            )
        except (OSError, ValueError) as error:
            raise fail(describe(error), 2) from error

    def check_outputs(self, plan: Plan, outputs: Iterable[Path]) -> None:
        """Refuse to write onto a file of the data set, or onto that of the parameters."""
        params = None if self.params is None else Path(self.params)
        made = [(path, self.data) for path in outputs]
        check_outputs(made, [*plan.dataset.files(), params], "choose another --out")


def limits_of(options: Any) -> dict[str, Any]:
    """Return the limits that were given."""
    given = {name: getattr(options, name, None) for name in LIMITS}
    return {name: value for name, value in given.items() if value is not None}


def tell_picture(path: Path, as_json: bool, more: Mapping[str, Any]) -> None:
    """Print where a picture is; to programs also what it shows."""
    if as_json:
        print_json({"picture": str(path), **more})
    else:
        console.print(f"Picture: {path}")
