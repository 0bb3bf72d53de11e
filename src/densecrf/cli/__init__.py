"""The command line, ``densecrf``; its parts are installed by ``pip install "densecrf[cli]"``."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line, or say what is missing."""
    try:
        from densecrf.cli.app import app
    except ImportError as error:
        if error.name in ("typer", "rich", "PIL"):
            print(
                f'The command line needs {error.name}: pip install "densecrf[cli]"',
                file=sys.stderr,
            )
            raise SystemExit(2) from error
        raise
    app(prog_name="densecrf")
