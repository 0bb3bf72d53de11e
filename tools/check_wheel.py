"""Check an installed wheel: nothing beside NumPy, all notices, a quick import, a first answer.

Run by the Python of an environment into which only the wheel was installed, from a folder that
does not hold the source tree.
"""

import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import distribution, distributions
from pathlib import Path

NOTICES = {
    "LICENSE": "Apache License",
    "nanobind.txt": "Wenzel Jakob",
    "robin-map.txt": "Thibaut Goetghebuer-Planchon",
}
TIMER = """
from time import process_time
times = [process_time()]
import numpy
times.append(process_time())
import densecrf
densecrf.DenseCRF
times.append(process_time())
print(times[1] - times[0], times[2] - times[1])
"""


def check_dependencies() -> None:
    """Fail if the wheel pulled in anything that users did not ask for."""
    names = {distribution.metadata["Name"].lower() for distribution in distributions()}
    extra = names - {"densecrf", "numpy", "pip", "setuptools", "wheel"}
    if extra:
        raise SystemExit(f"the wheel pulled in more than NumPy: {sorted(extra)}")


def check_notices() -> None:
    """Fail if the licence of the package, or of what is compiled into its core, is missing."""
    files = distribution("densecrf").files or []
    texts = {path.name: path.read_text() for path in files if "licenses" in path.parts}
    for name, words in NOTICES.items():
        if words not in texts.get(name, ""):
            raise SystemExit(f"the wheel lacks the notice {name} (it has {sorted(texts)})")


def check_import_time() -> None:
    """Fail if the model takes more CPU time to import than NumPy, each the best of five."""
    runs = [
        subprocess.run([sys.executable, "-c", TIMER], check=True, capture_output=True).stdout
        for _ in range(5)
    ]
    pairs = [map(float, run.split()) for run in runs]
    numpy, own = (1e3 * min(times) for times in zip(*pairs, strict=True))
    print(f"import of NumPy: {numpy:.0f} ms, of the model after it: {own:.0f} ms")
    if own > numpy:
        raise SystemExit("importing densecrf is too slow")


def check_answer() -> None:
    """Build a small model on the compiled core and compare energies that are known."""
    import numpy as np

    import densecrf

    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)
    unary = rng.random((3, 24, 32), dtype=np.float32)
    crf = densecrf.DenseCRF(
        unary,
        [
            densecrf.Spatial(sigma=3, weight=3),
            densecrf.Bilateral(image, sigma_xy=60, sigma_color=13, weight=10),
        ],
        filter="lattice",
    )
    for label, expected in enumerate(unary.sum(axis=(1, 2), dtype=np.float64)):
        energy = crf.energy(np.full((24, 32), label))
        if not np.isclose(energy, expected, rtol=1e-5):
            raise SystemExit(f"constant labelling {label}: energy {energy}, expected {expected}")
    mixed = crf.energy(unary.argmin(axis=0))
    if not mixed > unary.min(axis=0).sum():
        raise SystemExit(f"energy {mixed} of a mixed labelling lacks its pairwise part")
    print(f"densecrf {densecrf.__version__} from {densecrf.__file__}: energy {mixed:.3f}")


def check_command() -> None:
    """Run a program for pydensecrf in a folder that has a module of its own called densecrf."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "densecrf.py").write_text("import pydensecrf.densecrf as d; NAME = d.__name__")
        Path(folder, "script.py").write_text("import densecrf; print(densecrf.NAME)")
        command = [Path(sysconfig.get_path("scripts"), "densecrf-pydensecrf"), "script.py"]
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if not run.stdout.startswith("densecrf."):
        raise SystemExit(f"densecrf-pydensecrf: {run.stdout}{run.stderr}")


if __name__ == "__main__":
    check_dependencies()
    check_notices()
    check_import_time()
    check_answer()
    check_command()
