"""The errors that readers raise, with the file and the reason."""

from __future__ import annotations

import os

from densecrf.validation import ArgumentError


class FileFormatError(ArgumentError):
    """A file that cannot be used, with its path and the reason.

    Examples
    --------
    >>> raise FileFormatError("scores.npy", "holds text")
    Traceback (most recent call last):
        ...
    densecrf.io.errors.FileFormatError: scores.npy: holds text
    """

    def __init__(
        self, path: str | os.PathLike[str], reason: str, too_many_pixels: bool = False
    ) -> None:
        super().__init__(os.fspath(path), ..., reason)
        self.path = self.name
        #: Whether the file is an image that is too large to decode as a whole.
        self.too_many_pixels = too_many_pixels

    @property
    def reason(self) -> str:
        """What is wrong with the file and what to do."""
        return self.remedy

    def __reduce__(self) -> tuple[type[FileFormatError], tuple[str, str, bool]]:
        """Pickle with all arguments, so that worker processes can return the error."""
        return type(self), (self.path, self.args[2], self.too_many_pixels)


def too_many_pixels(path: str | os.PathLike[str], most: int) -> FileFormatError:
    """Return the error of an image of more than `most` pixels."""
    return FileFormatError(
        path,
        f"has more than {most:,} pixels; use densecrf.large.refine or densecrf segment --tile, "
        "or raise PIL.Image.MAX_IMAGE_PIXELS if you trust the file",
        too_many_pixels=True,
    )
