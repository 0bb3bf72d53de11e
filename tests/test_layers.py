"""The layers of the package: no import goes upwards."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "densecrf"

# From the bottom to the top. Modules of one layer do not import each other; a folder is one module.
LAYERS = (
    ("validation", "cached", "colors", "extras", "_pyinstaller", "_moved"),
    ("deadline", "resample", "changes", "label_prior", "metrics", "data"),
    ("native", "parallel", "experiments"),  # experiments: the former place of metrics
    ("kernels", "projections", "filters", "hard_labels"),
    ("backend", "unaries"),
    ("steps",),
    ("pairwise",),
    ("compatibility", "result"),
    ("certificates",),
    ("problem", "verification"),
    ("rounding",),
    ("io", "plotting", "solvers"),
    ("display", "records"),
    ("model",),
    ("parameters",),
    ("presets",),
    ("torch", "specification"),
    ("refinement",),
    ("scribbles",),
    ("drop_in", "large"),
    ("densecrf",),  # the public names, loaded on first use
    ("learning",),
    ("app",),
    ("widget", "napari"),
    ("cli",),
    ("__main__",),
)
# Modules that belong to another room than their folder's: steps on tensors.
ELSEWHERE = {"densecrf.steps.torch": "torch", "densecrf.steps.triton": "torch"}
LAYER = {name: layer for layer, names in enumerate(LAYERS) for name in names}

# Imports inside functions that go upwards all the same, and why.
LATE = {
    ("large", "densecrf"): "the version, among the settings of a run",
    ("certificates", "densecrf"): "the version, in an error that reports a defect",
    ("certificates", "problem"): "certify makes the problem of a model",
    ("result", "verification"): "Result.verify",
    ("result", "io"): "Result.save and load",
    ("certificates", "display"): "what notebooks show",
    ("kernels", "display"): "what notebooks show",
    ("result", "display"): "what notebooks show",
    ("result", "plotting"): "Result.plot draws with the optional extra",
    ("solvers", "torch"): "solve(device=...) continues on the device",
}


def room(module):
    if module in ELSEWHERE:
        return ELSEWHERE[module]
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        yield name.removesuffix(".__init__"), path


@cache
def parsed(path):
    return ast.parse(path.read_text("utf-8"))


def imports(path):
    """Yield (line, module, whether at module level) for each import of the package at run time."""
    tree = parsed(path)
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "densecrf":
            names = [f"densecrf.{alias.name}" for alias in node.names]
            names = [name if room(name) in LAYER else "densecrf" for name in names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "densecrf":
                yield node.lineno, room(name), node in tree.body


@pytest.mark.parametrize(("name", "path"), list(modules()), ids=lambda value: str(value)[-40:])
def test_no_import_goes_upwards(name, path):
    own = room(name)
    assert own in LAYER, f"{own}: give it a layer in {Path(__file__).name}"
    for line, other, at_top in imports(path):
        assert other in LAYER, f"{name}:{line}: {other} has no layer"
        downwards = other == own or LAYER[other] < LAYER[own]
        late = not at_top and (own, other) in LATE
        assert downwards or late, f"{name}:{line} imports {other}, which is not below {own}"


def test_relative_imports_and_unused_exceptions_do_not_hide():
    late = set()
    for name, path in modules():
        relative = [n for n in ast.walk(parsed(path)) if isinstance(n, ast.ImportFrom) and n.level]
        assert not relative, f"{name}: relative imports"
        late |= {(room(name), other) for _, other, _ in imports(path)}
    assert set(LATE) <= late
