"""The files that a command will write, checked as a whole before it does any work."""

from collections.abc import Iterable
from pathlib import Path

import typer

from densecrf.io.opening import identities, kind_of_file

__all__ = ["check_outputs"]


def check_outputs(
    outputs: Iterable[tuple[Path, object]], inputs: Iterable[Path | None], remedy: str
) -> None:
    """Refuse to write onto an input, onto one file twice, or onto what is no file.

    Two paths are the same file by their names, whatever the case of the letters, by links, and by
    hard links.

    Parameters
    ----------
    outputs : iterable of (Path, object)
        Each file to write, and what it is made from.
    inputs : iterable of Path
        Each file that is read, or may be; None stands for one that was not given.
    remedy : str
        What to do, after "; ".
    """
    read = {key: path for path in inputs if path is not None for key in identities(path)}
    written: dict[object, object] = {}
    for path, source in outputs:
        if replaced := [read[key] for key in identities(path) if key in read]:
            reason = f"{path}, made from {source}, would replace the input {replaced[0]}"
            raise typer.BadParameter(f"{reason}; {remedy}")
        name = identities(path)[0]
        if name in written:
            reason = f"{written[name]} and {source} would both be written to {path}"
            raise typer.BadParameter(f"{reason}; {remedy}")
        written[name] = source
        if kind := _obstacle(path):
            raise typer.BadParameter(f"{path} cannot be written: {kind}; {remedy}")


def _obstacle(path: Path) -> str | None:
    """Return what lies where a file is to be written, unless it is a file or nothing."""
    try:
        kind = kind_of_file(path)
    except NotADirectoryError:
        return "a part of its path is a file, not a folder"
    except OSError:
        return None
    return kind and f"it is {kind}"
