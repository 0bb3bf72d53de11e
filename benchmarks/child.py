"""Measurements of memory, in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT


class Peak:
    """The peak of this process's resident memory, from here on."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")
        self._before = _status("VmRSS:")

    def growth(self) -> int:
        """Return by how many bytes the peak exceeds what was resident at the start."""
        return _status("VmHWM:") - self._before


def _status(field: str) -> int:
    with Path("/proc/self/status").open() as lines:
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


def in_child(code: str, *arguments: Any) -> Any:
    """Run `code`, which finds the arguments as JSON in argv[1]; return the JSON that it prints."""
    completed = subprocess.run(
        [sys.executable, "-c", code, json.dumps(arguments)],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    return json.loads(completed.stdout)
