"""Old paths of modules lead to the same objects, with a warning that names the new path."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import subprocess
import sys
import warnings

import pytest

import densecrf
from densecrf._moved import MOVED, Moved
from densecrf.drop_in import pydensecrf, simplecrf
from densecrf.drop_in.pydensecrf import utils
from densecrf.drop_in.pydensecrf.densecrf import DenseCRF2D

pytestmark = pytest.mark.filterwarnings("ignore:densecrf:DeprecationWarning")


@pytest.fixture(autouse=True)
def _forget():
    """Forget the old paths, so that each test imports them for the first time."""
    yield
    for name in [name for name in sys.modules if name.startswith(tuple(MOVED))]:
        del sys.modules[name]
    for name in MOVED:
        vars(densecrf).pop(name.partition(".")[2], None)


def run(*arguments):
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip(), done.stderr.strip()


@pytest.mark.parametrize("old", MOVED)
def test_every_old_path_is_found(old):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is imported yet
        spec = importlib.util.find_spec(old)
    assert spec.origin == importlib.util.find_spec(MOVED[old]).origin


@pytest.mark.filterwarnings("default::DeprecationWarning")
def test_one_warning_at_the_importing_line():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import densecrf.pydensecrf.utils  # noqa: F401
    (one,) = caught
    assert str(one.message).startswith(
        "densecrf.pydensecrf has moved to densecrf.drop_in.pydensecrf"
    )
    assert one.filename == __file__


def test_every_way_to_import():
    import densecrf.pydensecrf.utils as old_utils
    from densecrf.pydensecrf import densecrf as module
    from densecrf.pydensecrf.densecrf import DenseCRF2D as old_class  # noqa: N813
    from densecrf.simplecrf import denseCRF3D as old_3d  # noqa: N813

    assert old_class is DenseCRF2D
    assert old_utils is utils
    assert module is pydensecrf.densecrf
    assert old_3d is simplecrf.denseCRF3D
    assert importlib.import_module("densecrf.pydensecrf") is pydensecrf


def test_attribute_of_the_package():
    with pytest.warns(DeprecationWarning, match=r"moved to densecrf\.drop_in\.simplecrf") as caught:
        assert densecrf.simplecrf is simplecrf
    assert caught[0].filename == __file__


def test_metrics_of_the_former_experiments():
    with pytest.warns(DeprecationWarning, match=r"densecrf\.experiments has moved to densecrf;"):
        from densecrf.experiments import metrics
    from densecrf.experiments.metrics import accuracy

    assert metrics is densecrf.metrics
    assert accuracy is densecrf.metrics.accuracy


def test_modules_keep_their_own_names():
    importlib.import_module("densecrf.pydensecrf.utils")
    assert utils.__name__ == utils.__spec__.name == "densecrf.drop_in.pydensecrf.utils"
    assert importlib.reload(utils) is utils


def test_pickles_of_the_old_path():
    new = pickle.dumps(DenseCRF2D, protocol=0)
    old = new.replace(b"densecrf.drop_in.pydensecrf", b"densecrf.pydensecrf")
    assert new != old
    assert pickle.loads(old) is DenseCRF2D


def test_names_that_do_not_exist():
    with pytest.raises(ModuleNotFoundError, match=r"densecrf\.pydensecrf\.nothing"):
        importlib.import_module("densecrf.pydensecrf.nothing")
    with pytest.raises(AttributeError, match="nothing"):
        densecrf.nothing  # noqa: B018


def test_program_is_run_by_the_old_path():
    code = "import pydensecrf.utils as u; print(u.__name__)"
    out, err = run("-m", "densecrf.pydensecrf", "-c", code)
    assert (out, err) == ("densecrf.drop_in.pydensecrf.utils", "")
    _, err = run("-W", "always", "-m", "densecrf.pydensecrf", "-c", "pass")
    assert err.count("moved to densecrf.drop_in.pydensecrf") == 1


def test_import_of_the_package_alone_warns_of_nothing():
    assert run("-W", "error", "-c", "import densecrf; dir(densecrf); import densecrf.drop_in") == (
        "",
        "",
    )


def test_longest_old_path_counts():
    moved = Moved({"a.b": "new", "a.b.c": "other.place"})
    names = ("a.b", "a.b.x", "a.b.c", "a.b.c.d", "a.bc", "a", "b")
    assert [moved._new(name) for name in names] == [
        *("new", "new.x", "other.place", "other.place.d"),
        *("", "", ""),
    ]
