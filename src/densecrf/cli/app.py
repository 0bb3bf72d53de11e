"""The application: its commands, one per module, and their help, short or by ``--help-all``."""

from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from densecrf import __version__
from densecrf.cli import (
    adapt,
    box,
    browser,
    certify,
    compare,
    demo,
    fit,
    info,
    masks,
    presets,
    segment,
    video,
)
from densecrf.cli.reports import console, fail

__all__ = ["EPILOG", "app"]

EPILOG = (
    "Exit codes: 0, all done; 1, some inputs could not be used (they are listed, the others are "
    "done); 2, the command was not understood; 130, interrupted (run it again to continue)."
)

ALL = "--help-all"
FEW = 10  # options that are shown in any case
#: Arguments of commands with more options that only ``--help-all`` shows.
RARE = {
    *("kind", "n_labels", "bands", "image_range", "palette", "page", "fill_missing", "classes"),
    *("strength", "sigma", "weight", "sigma_xy", "sigma_color", "bilateral_weight"),
    *("confidence", "scale_sigmas", "adapt", "background", "background_power"),
    *("method", "time_limit", "max_iterations", "threads", "device", "scheduler"),
    *("overlays", "marginals", "confident", "unsure", "min_area", "tile", "window", "sigma_t"),
    *("force", "as_json", "quiet"),
    "folds",
}


def _tidied(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""  # a flag has no value, and so no type
        if ALL in param.opts:
            param.opts.sort(key=len)
    return params


class _Commands(TyperGroup):
    """Commands that end at Ctrl-C with one line."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options as the help shows them."""
        return _tidied(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            console.print("Interrupted.")
            raise typer.Exit(130) from None


class _Command(TyperCommand):
    """A command whose ``--help`` is short."""

    _all = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Note whether ``--help-all`` is given."""
        self._all = ALL in args
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options as the help shows them."""
        return _tidied(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, without rare options unless ``--help-all`` is given."""
        params = self.get_params(ctx)
        rare = [param for param in params if param.name in RARE and len(params) > FEW]
        for param in params:
            if ALL in param.opts and rare:
                param.help = f"Show this message, or that with {len(rare)} more options, and exit."
        for param in rare:
            param.hidden = not self._all
        try:
            super().format_help(ctx, formatter)
        finally:
            for param in rare:
                param.hidden = False


app = typer.Typer(
    name="densecrf",
    cls=_Commands,
    help="Certified segmentation with fully connected CRFs.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help", ALL]},
)
for command in (segment.segment, compare.compare, certify.certify, info.info, demo.demo):
    app.command(epilog=EPILOG, cls=_Command)(command)
for command in (box.box, masks.masks, video.video, adapt.adapt, fit.fit, presets.presets):
    app.command(epilog=EPILOG, cls=_Command)(command)
app.command("app", epilog=EPILOG, cls=_Command)(browser.open_app)


def _moved(context: typer.Context) -> None:
    """Print where a former command is now, until 0.3.0."""
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
