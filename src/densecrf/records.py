"""Records of a run's tasks, one small JSON file each, so that an interrupted run can continue.

A record is valid if its file is intact (checksum) and was made with the same settings. Otherwise
the task is run again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from densecrf.io.atomic import atomic_writer

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

__all__ = ["RecordStore"]

Key = tuple[str, ...]


@dataclass(frozen=True)
class RecordStore:
    """A folder of records, addressed by keys such as ``("shared", "lp", "2_14_s")``.

    Processes may write different keys at the same time.

    Attributes
    ----------
    folder : path-like
        The folder; it is created with the first record.
    durable : bool
        Whether records are flushed to disk and survive a power failure: slower.

    Examples
    --------
    >>> import tempfile
    >>> store = RecordStore(tempfile.mkdtemp())
    >>> store.save(("lp", "cat"), {"gap": 1e-3}, {"energy": 12.5})
    >>> store.load(("lp", "cat"), {"gap": 1e-3})
    {'energy': 12.5}
    >>> store.load(("lp", "cat"), {"gap": 1e-4}) is None  # made with other settings
    True
    """

    folder: str | os.PathLike[str]
    durable: bool = True

    def path(self, key: Key) -> Path:
        """Return the file of a key; its parts are plain names."""
        for part in key:
            if not part or part.startswith(".") or part != Path(part).name or "\\" in part:
                raise ValueError(f"key {key!r}: {part!r} is not a plain name")
        if not key:
            raise ValueError("key () must have at least one part")
        return Path(self.folder, *key[:-1], f"{key[-1]}.json")

    def save(self, key: Key, settings: Mapping[str, Any], values: Any) -> None:
        """Write a record of plain values, atomically."""
        body = {"settings": settings, "values": values}
        text = json.dumps({**body, "sha256": _checksum(body)}, allow_nan=False)
        with atomic_writer(self.path(key), durable=self.durable) as file:
            file.write(text.encode())

    def load(self, key: Key, settings: Mapping[str, Any]) -> Any:
        """Return the values of a record, or None when the task must be done (again)."""
        try:
            raw = json.loads(self.path(key).read_text("utf-8"))
        except (FileNotFoundError, ValueError, RecursionError):
            return None
        if not isinstance(raw, dict) or set(raw) != {"settings", "values", "sha256"}:
            return None
        checksum = raw.pop("sha256")
        if checksum != _checksum(raw) or _canonical(raw["settings"]) != _canonical(settings):
            return None
        return raw["values"]


def _canonical(values: Any) -> str:
    """Write settings in a canonical form, independent of the order of their names."""
    return json.dumps(values, sort_keys=True, allow_nan=False, separators=(",", ":"))


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(body).encode()).hexdigest()
