"""The application: one command a module, listed here."""

from typing import Annotated, Any

import typer

from densecrf import __version__
from densecrf.cli import (
    adapt,
    browser,
    certify,
    compare,
    demo,
    fit,
    info,
    segment,
)
from densecrf.cli.help import HELP_NAMES, Command, Group
from densecrf.cli.reports import console, fail

__all__ = ["EPILOG", "app"]

EPILOG = (
    "Exit codes: 0, all done; 1, some inputs could not be used (they are listed, the others are "
    "done); 2, the command was not understood; 130, interrupted (run it again to go on)."
)


class _Commands(Group):
    """Commands that Ctrl-C ends with a line of their own, or with this one."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            console.print("Interrupted.")
            raise typer.Exit(130) from None


app = typer.Typer(
    name="densecrf",
    cls=_Commands,
    help="Certified segmentation with fully connected CRFs.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": list(HELP_NAMES)},
)
for command in (segment.segment, compare.compare, certify.certify, info.info, demo.demo):
    app.command(epilog=EPILOG, cls=Command)(command)
for command in (adapt.adapt, fit.fit):
    app.command(epilog=EPILOG, cls=Command)(command)
app.command("app", epilog=EPILOG, cls=Command)(browser.open_app)


def _moved(context: typer.Context) -> None:
    """Say where a former command is, until the next release."""
    raise fail(
        f"densecrf {context.info_name} is now part of the experiments in the source repository: "
        f"there, python -m experiments --help. To learn a model, use densecrf fit.",
        2,
    )


for former in ("reproduce", "tune"):
    anything = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command(former, hidden=True, context_settings=anything)(_moved)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"densecrf {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Certified segmentation with fully connected CRFs."""
