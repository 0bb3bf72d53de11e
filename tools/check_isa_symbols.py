"""Fail if a wide instruction set could leak into code that runs on every machine.

Files under native/src/simd are compiled several times with wider and wider instructions. A
function that such an object defines as *weak* (an inline function, an instance of a template) and
whose name does not carry the instruction set may be merged by the linker with the copies of other
files; if the wide copy wins, the library dies with SIGILL on an older processor. This looks for
such symbols in the object files of a build folder.

Usage: python tools/check_isa_symbols.py BUILD_FOLDER...
"""

import subprocess
import sys
from pathlib import Path

WIDE = ("avx2", "avx512")


def leaks(build: Path, isa: str) -> list[str]:
    """Return 'object: symbol' for each mergeable symbol that is not named after `isa`."""
    found = []
    for path in sorted(build.glob(f"**/densecrf_simd_{isa}.dir/**/*.o")):
        listing = subprocess.run(
            ["nm", "--defined-only", "--format=posix", path],
            check=True,
            capture_output=True,
            text=True,
        )
        for line in listing.stdout.splitlines():
            symbol, kind = line.split()[:2]
            if kind in "WVu" and isa not in symbol and not symbol.startswith("DW.ref."):
                found.append(f"{path.name}: {symbol}")
    return found


def main() -> int:
    """Report every leak; return the exit status."""
    folders = [Path(argument) for argument in sys.argv[1:]]
    found = [f"[{isa}] {leak}" for build in folders for isa in WIDE for leak in leaks(build, isa)]
    for line in found:
        print(line)
    if found:
        print(f"{len(found)} symbols of wide objects may replace portable ones (see {__file__})")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
