"""Rehearse a release: everything but the upload.

    python tools/release.py versions           # one version, and the same pins, in every file
    python tools/release.py versions --set 0.2.0
    python tools/release.py build              # dist/: sdist, a wheel per Python, the shim
    python tools/release.py check              # metadata, platform tags, empty environments
    python tools/release.py pythons            # the Pythons that there are

Needs the extra ``release``. ``build`` finds every Python from 3.10 on that can compile extensions;
one abi3 wheel serves 3.12 and later.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
WORK = ROOT / "build" / "release"
VERSION = r"\d+\.\d+\.\d+(?:\.?(?:dev|rc|a|b)\d*)?"
#: Files that state the version, and the words before it.
STATED = {
    "src/densecrf/__init__.py": r'(__version__ = ")',
    "CITATION.cff": r"(^version: )",
    ".zenodo.json": r'("version": ")',
    "packages/pydensecrf/pyproject.toml": r'(^version = ")',
    "packages/conda/recipe.yaml": r'(^  version: ")',
}


def text_of(name: str) -> str:
    """Return a file of the project."""
    return (ROOT / name).read_text("utf-8")


def stated(name: str) -> str:
    """Return the version that a file states."""
    found = re.search(rf"{STATED[name]}({VERSION})", text_of(name), re.MULTILINE)
    if found is None:
        raise SystemExit(f"{name} states no version")
    return found[2]


def set_version(version: str) -> None:
    """Write the version into every file that states it."""
    for name, before in STATED.items():
        new = re.sub(rf"{before}{VERSION}", rf"\g<1>{version}", text_of(name), flags=re.MULTILINE)
        (ROOT / name).write_text(new, "utf-8")


def requirements(name: str, key: str) -> list[str]:
    """Return a list of requirements of a pyproject.toml, without spaces."""
    line = re.search(rf"^{key} = \[(.*)\]$", text_of(name), re.MULTILINE)
    assert line is not None
    return [each.strip().strip('"').replace(" ", "") for each in line[1].split(",")]


def check_versions() -> None:
    """Fail where two files state different versions or pins."""
    version = stated("src/densecrf/__init__.py")
    wrong = {name: stated(name) for name in STATED if stated(name) != version}
    if wrong:
        raise SystemExit(f"the version is {version}, but {wrong}; run with --set {version}")
    recipe = re.sub(r"(?<=\w) (?=[<>=])", "", text_of("packages/conda/recipe.yaml"))
    for key in ("requires", "dependencies"):
        for pin in requirements("pyproject.toml", key):
            if f"- {pin}\n" not in recipe:
                raise SystemExit(f"packages/conda/recipe.yaml lacks {pin} of pyproject.toml")
    minor = ".".join(version.split(".")[:2])
    if f"densecrf>={minor}" not in requirements(
        "packages/pydensecrf/pyproject.toml", "dependencies"
    ):
        raise SystemExit(f"packages/pydensecrf must depend on densecrf>={minor}")
    released = re.search(
        rf"^## {re.escape(version)} - (\S+)$", text_of("CHANGELOG.md"), re.MULTILINE
    )
    if released is None:
        raise SystemExit(f"CHANGELOG.md has no section '## {version} - DATE'")
    if f"date-released: {released[1]}\n" not in text_of("CITATION.cff"):
        raise SystemExit(f"CITATION.cff must have date-released: {released[1]}, as CHANGELOG.md")
    print(f"version {version} and its pins agree in {len(STATED)} files")


def run(*command: str | Path) -> None:
    """Run a command, with this environment's programs at hand; end where it fails."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run([str(part) for part in command], check=True, env=os.environ | {"PATH": path})


def uv(*arguments: str | Path) -> None:
    """Run uv of this environment."""
    run(Path(sys.executable).parent / "uv", *arguments)


def interpreters() -> list[str]:
    """Return one Python per minor version that can build the package, the oldest first."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = []
    for minor in range(10, 20):
        candidates = [f"python3.{minor}", *map(str, root.glob(f"3.{minor}.*/bin/python"))]
        for candidate in candidates:
            path = shutil.which(candidate)
            check = [path or "false", str(ROOT / "tools" / "check_machine.py")]
            if path and subprocess.run(check, check=False, capture_output=True).returncode == 0:
                found.append(path)
                break
    return found


def pythons() -> None:
    """Print the interpreters, one per line."""
    print(*interpreters(), sep="\n")


def build() -> None:
    """Build the sdist, from it a wheel per Python, and the shim."""
    shutil.rmtree(DIST, ignore_errors=True)
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    uv("build", "--quiet", "--sdist", "--out-dir", DIST, ROOT)
    (sdist,) = DIST.glob("densecrf-*.tar.gz")
    shutil.unpack_archive(sdist, WORK)  # beneath the checkout, where ccache knows the files
    source = WORK / sdist.name.removesuffix(".tar.gz")
    for python in interpreters():
        if list(DIST.glob("*-abi3-*.whl")):
            break
        uv("build", "--quiet", "--wheel", "--python", python, "--out-dir", WORK, source)
        (wheel,) = WORK.glob("*.whl")
        if sys.platform == "linux":
            run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", DIST, wheel)
        else:
            shutil.copy(wheel, DIST)
        wheel.unlink()
    uv("build", "--quiet", "--wheel", "--out-dir", DIST, ROOT / "packages" / "pydensecrf")
    print(*sorted(path.name for path in DIST.iterdir()), sep="\n")


def check() -> None:
    """Check metadata, then every Python with the wheel that serves it, in an empty environment."""
    uploads = [path for path in DIST.iterdir() if path.suffix in {".whl", ".gz"}]
    run(sys.executable, "-m", "twine", "check", "--strict", *uploads)
    if sys.platform == "linux" and any("-linux_" in path.name for path in uploads):
        raise SystemExit("a wheel has the platform tag linux, which no index takes")
    for python in interpreters():
        environment = WORK / "environment"
        uv("venv", "--quiet", "--clear", "--python", python, environment)
        own = environment / "bin" / "python"
        install = ("pip", "install", "--quiet", "--python", own, "--only-binary", ":all:")
        uv(*install, "--find-links", DIST, f"densecrf=={stated('src/densecrf/__init__.py')}")
        run(own, "-I", ROOT / "tools" / "check_wheel.py")
        uv(*install, "--no-index", "--find-links", DIST, "densecrf-pydensecrf")
        run(own, "-I", ROOT / "tools" / "check_import_name.py")
    write_sbom(own)
    write_recipe()


def write_recipe() -> None:
    """Write conda-forge's recipe with the checksum of the sdist, and parse it if possible."""
    (sdist,) = DIST.glob("densecrf-*.tar.gz")
    digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
    recipe = re.sub(r"sha256: \w+", f"sha256: {digest}", text_of("packages/conda/recipe.yaml"))
    (DIST / "recipe.yaml").write_text(recipe, "utf-8")
    if importlib.util.find_spec("rattler_build"):
        from rattler_build import Stage0Recipe

        print(f"recipe.yaml: {type(Stage0Recipe.from_yaml(recipe)).__name__}")


def write_sbom(python: Path) -> None:
    """Write the bill of materials of an installation, with the libraries compiled into the core."""
    version = stated("src/densecrf/__init__.py")
    path = DIST / f"densecrf-{version}.cdx.json"
    run(sys.executable, "-m", "cyclonedx_py", "environment", python, "--output-file", path)
    bill = json.loads(path.read_text("utf-8"))
    licenses = {"nanobind": "BSD-3-Clause", "robin-map": "MIT"}
    bill["components"] += [
        {"type": "library", "name": name, "licenses": [{"license": {"id": license_}}]}
        for name, license_ in licenses.items()
    ]
    path.write_text(json.dumps(bill, indent=1), "utf-8")


def main() -> None:
    """Run the steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", nargs="+", choices=("versions", "build", "check", "pythons"))
    parser.add_argument("--set", metavar="VERSION", help="write this version first")
    arguments = parser.parse_args()
    if arguments.set:
        set_version(arguments.set)
    for step in arguments.steps:
        {"versions": check_versions, "build": build, "check": check, "pythons": pythons}[step]()


if __name__ == "__main__":
    main()
