"""The help of commands: the options that people need first, and by ``--help-all`` all of them."""

from typing import Any

from typer.core import TyperCommand, TyperGroup

__all__ = ["HELP_NAMES", "Command", "Group"]

ALL = "--help-all"
HELP_NAMES = ("-h", "--help", ALL)
FEW = 10  # options that are shown in any case
#: Arguments of commands with more options that only ``--help-all`` shows.
RARE = {
    *("kind", "n_labels", "bands", "image_range", "palette", "page", "fill_missing", "classes"),
    *("strength", "sigma", "weight", "sigma_xy", "sigma_color", "bilateral_weight"),
    *("confidence", "scale_sigmas", "adapt"),
    *("method", "time_limit", "max_iterations", "threads", "device", "scheduler"),
    *("overlays", "marginals", "tile", "force", "as_json", "quiet"),
    *("passes", "reduce", "folds"),
}


def _tidied(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""  # a flag has no value, and so no type
        if ALL in param.opts:
            param.opts.sort(key=len)
    return params


class Group(TyperGroup):
    """Commands that have a help like this one's."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options as the help shows them."""
        return _tidied(super().get_params(ctx))


class Command(TyperCommand):
    """A command whose ``--help`` is short."""

    _all = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Note whether all options are asked for."""
        self._all = ALL in args
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options as the help shows them."""
        return _tidied(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, without rare options unless all are asked for."""
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
