"""The layers of the package: no import goes upwards."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "densecrf"

# From the bottom to the top. Modules of one layer do not import each other. A package is one entry,
# or its modules are entries of their own.
LAYERS = (
    ("validation", "cached", "colors", "extras", "_pyinstaller", "_moved"),
    ("model", "operators.torch", "problem", "solvers"),  # the packages themselves import nothing
    ("deadline", "model.resample", "model.resolution", "model.label_prior"),
    ("metrics", "data", "solvers.changes"),
    ("native", "parallel"),
    ("model.kernels", "problem.projections", "operators", "model.reading"),
    ("backend", "model.unaries"),
    ("steps",),
    ("operators.pairwise",),
    ("model.compatibility", "solvers.result"),
    ("problem.certificate",),
    ("problem.label_costs", "solvers.verification"),
    ("problem.problem",),
    ("problem.rounding", "problem.remainder"),
    ("io", "plotting", "solvers.methods"),
    ("display", "records", "model.masks"),
    ("model.crf",),
    ("model.parameters",),
    ("model.presets",),
    ("model.specification",),
    ("torch",),
    ("refinement",),
    ("model.scribbles",),
    ("model.boxes",),
    ("drop_in", "large", "masks"),
    ("densecrf",),  # the public names, loaded on first use
    ("learning",),
    ("app",),
    ("widget", "napari"),
    ("cli",),
    ("__main__",),
)
LAYER = {name: layer for layer, names in enumerate(LAYERS) for name in names}
# Everything on tensors is one entry.
ON_TENSORS = (
    "operators.torch",
    "operators.triton",
    "steps.torch",
    "steps.triton",
    "steps.lockstep",
)

# Imports inside functions that go upwards all the same, and why.
LATE = {
    ("large", "densecrf"): "the version, among the settings of a run",
    ("problem.certificate", "densecrf"): "the version, in an error that reports a defect",
    ("problem.certificate", "problem.problem"): "certify makes the problem of a model",
    ("solvers.result", "solvers.verification"): "Result.verify",
    ("solvers.result", "io"): "Result.save and load",
    ("solvers.result", "solvers.methods"): "Result.confidence, with one filter call",
    ("problem.certificate", "display"): "what notebooks show",
    ("model.kernels", "display"): "what notebooks show",
    ("solvers.result", "display"): "what notebooks show",
    ("solvers.result", "plotting"): "Result.plot draws with the optional extra",
    ("solvers.methods", "torch"): "solve(device=...) continues on the device",
}


def room(module):
    """Return the entry that a module belongs to: the longest one that its name begins with."""
    name = module.partition(".")[2]
    if not name:
        return "densecrf"
    if name.startswith(ON_TENSORS):
        return "torch"
    parts = name.split(".")
    found = next(
        entry
        for length in range(len(parts), -1, -1)
        if (entry := ".".join(parts[:length])) in LAYER or not entry
    )
    if found == "solvers" and len(parts) > 1:
        return "solvers.methods"
    return found or parts[0]


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        yield name.removesuffix(".__init__"), path


@cache
def known():
    return {name for name, _ in modules()}


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
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known() else node.module for name in names]
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


# --- forms ---------------------------------------------------------------------------------------

MOST_PARAMETERS = 12
# Functions whose parameters are a public interface: of Python, or options of the command line.
SHELLS = {
    "densecrf.cli.masks.masks",
    "densecrf.masks.refine_masks",
    "densecrf.refinement.refine",
    "densecrf.large.refinement.refine",
    "densecrf.large.points.refine_points",
    "densecrf.cli.segment.segment",
}


def is_kernel(function):
    return any("triton.jit" in ast.unparse(each) for each in function.decorator_list)


def test_only_public_shells_and_kernels_have_many_parameters():
    many = set()
    for name, path in modules():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_kernel(node):
                given = node.args
                count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)
                if count > MOST_PARAMETERS:
                    many.add(f"{name}.{node.name}")
    assert many == SHELLS


@cache
def classes():
    """Return the base classes of ours, by the full names of our classes."""
    found = {}
    for name, path in modules():
        names = {}
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif isinstance(node, ast.ClassDef):
                names[node.name] = f"{name}.{node.name}"
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                bases = (ast.unparse(base).partition("[")[0] for base in node.bases)
                found[f"{name}.{node.name}"] = [names.get(base) for base in bases]
    return found


def depth(name):
    return 1 + max((depth(base) for base in classes()[name] if base in classes()), default=0)


def test_class_hierarchies_are_two_deep_at_most():
    assert max(map(depth, classes())) == 2
    assert [name for name in classes() if depth(name) > 2] == []
