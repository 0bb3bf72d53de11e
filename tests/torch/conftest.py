"""Fixtures of the torch tests: both engines, Triton's in its interpreter where there is no GPU."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

torch.set_num_threads(1)  # small problems: threads would cost more than they do

from densecrf.operators.torch.dispatch import has_triton, interpreted  # noqa: E402


def _interpret_quickly():
    """Let Triton's interpreter replace its language once, and check no sum for overflow.

    Types and shapes of tensors, which it makes anew for each operation, are made once.
    """
    from triton import language
    from triton.runtime import interpreter

    replace, done = interpreter._patch_lang, set()

    def once(function):
        if id(function.__globals__) not in done:
            done.add(id(function.__globals__))
            replace(function)
        return SimpleNamespace(restore=lambda: None)

    interpreter._patch_lang = once
    options = interpreter.InterpreterOptions(sanitize_overflow=False)
    interpreter.interpreter_builder.options = options
    make_type, types = language.block_type.__init__, {}
    make_tensor, tensors = language.tensor.__init__, {}
    find_dtype, dtypes = interpreter._get_np_dtype, {}

    def block_type(self, element_ty, shape):
        key = (element_ty.name, *(getattr(side, "value", side) for side in shape))
        if key not in types:
            make_type(self, element_ty, shape)
            types[key] = vars(self).copy()
        vars(self).update(types[key])

    def tensor(self, handle, type_):
        if type_.name not in tensors:
            make_tensor(self, None, type_)
            tensors[type_.name] = vars(self).copy()
        vars(self).update(tensors[type_.name], handle=handle)

    def np_dtype(type_):
        if type_.name not in dtypes:
            dtypes[type_.name] = find_dtype(type_)
        return dtypes[type_.name]

    interpreter._get_np_dtype = np_dtype

    language.block_type.__init__, language.tensor.__init__ = block_type, tensor


if has_triton() and interpreted():
    _interpret_quickly()


@pytest.fixture
def device():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(params=["torch", "triton"])
def engine(request):
    if request.param == "triton" and not has_triton():
        pytest.skip("Triton is not installed")
    return request.param


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def build_by_torch(monkeypatch):
    """Let plain operations build the lattices, which takes Triton's interpreter long."""
    from densecrf.operators.torch import lattice, lattice_sum
    from densecrf.operators.triton import topology

    build, own = lattice.build_topologies, lattice.Lattice.diagonal
    monkeypatch.setattr(lattice, "build_topologies", lambda f, k, _, p: build(f, k, False, p))
    monkeypatch.setattr(topology, "merge", lattice_sum._merge_by_torch)
    monkeypatch.setattr(lattice.Lattice, "diagonal", lambda each: own(replace(each, triton=False)))


@pytest.fixture
def by_triton(monkeypatch):
    """Let Triton's kernels do all work, interpreted where there is no GPU."""
    if not has_triton():
        pytest.skip("Triton is not installed")
    from densecrf.operators.torch import lattice, pixelwise
    from densecrf.torch import layer as module

    def use_triton(tensor, engine="auto"):
        return engine != "torch" and tensor.dtype != torch.float64

    for each in (lattice, module, pixelwise):
        monkeypatch.setattr(each, "use_triton", use_triton)
    monkeypatch.setattr(module, "core_takes", lambda *_: False)
