"""The commands of ``python -m experiments``."""

import typer

from densecrf.cli.app import EPILOG
from experiments.commands.alternatives import alternatives
from experiments.commands.difference import difference
from experiments.commands.reproduce import curves, gaps, panel, speedup, table
from experiments.commands.tune import tune

__all__ = ["app"]

app = typer.Typer(
    name="experiments",
    help="The paper's evaluation on your data, other refinements beside it, and tuning.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (table, difference, gaps, curves, speedup, panel, alternatives, tune):
    app.command(epilog=EPILOG)(command)
