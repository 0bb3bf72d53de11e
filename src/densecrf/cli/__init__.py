"""The command line, ``densecrf``; its parts are installed by ``pip install "densecrf[cli]"``."""

import io
import os
import re
import sys

__all__ = ["MANY_JOBS", "main"]

MANY_JOBS = 6  # from which on threads contend for Python's lock, and processes do the work


def main() -> None:
    """Run the command line, or name the missing library; Ctrl-C ends it with 130."""
    try:
        _run()
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        raise SystemExit(130) from None


def _run() -> None:
    command = r" (?:segment|adapt)(?: .*)? (?:--jobs|-j)[ =]?([0-9]+)"
    asked = re.search(command, " ".join(sys.argv))
    if asked and int(asked[1]) >= MANY_JOBS:
        from densecrf.parallel import preload

        # They are imported while this process imports the commands.
        preload("densecrf.cli.segment", "densecrf._native", "PIL.Image")
    try:
        from densecrf.cli.app import app
    except ImportError as error:
        if error.name not in ("typer", "rich", "PIL"):
            raise
        remedy = 'pip install "densecrf[cli]"'
        print(f"The command line needs {error.name}: {remedy}", file=sys.stderr)
        raise SystemExit(2) from error
    # A shell can start a program without them (>&-); then there is no reader.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123
    if isinstance(sys.stdout, io.TextIOWrapper):  # for names of files that are not UTF-8
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            app(prog_name="densecrf")
        finally:
            sys.stdout.flush()
    except OSError as error:  # of the terminal or pipe; commands report errors of files
        _give_up_output(error)
        raise SystemExit(1) from error


def _give_up_output(error: OSError) -> None:
    """Report why standard output could not be written, unless its reader closed it."""
    if not isinstance(error, BrokenPipeError):
        reason = error.strerror or error
        print(f"Error: cannot write to standard output: {reason}", file=sys.stderr)
    # Otherwise Python would fail again when it flushes at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
