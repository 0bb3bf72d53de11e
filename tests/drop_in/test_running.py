"""Programs written for pydensecrf run unmodified: scripts, modules, code, child processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import sys
import numpy as np
import pydensecrf.densecrf as dcrf
from pydensecrf.utils import unary_from_softmax
import pydensecrf.eigen

def main():
    d = dcrf.DenseCRF2D(3, 2, 2)
    d.setUnaryEnergy(unary_from_softmax(np.full((2, 2, 3), 0.5, np.float32)))
    d.addPairwiseGaussian(sxy=1, compat=3)
    Q = d.inference(5)
    print(dcrf.__name__, np.array(Q).shape, __name__, *sys.argv[1:])

if __name__ == "__main__":
    main()
"""
CHILDREN = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

def name(_):
    import pydensecrf.densecrf as dcrf
    return dcrf.__name__

if __name__ == "__main__":
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        print(list(pool.map(name, [0])))
"""


def run(*arguments, cwd, python=sys.executable, env=None):
    command = [str(python), "-m", "densecrf.drop_in.pydensecrf", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, check=False)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "children.py").write_text(CHILDREN)
    package = tmp_path / "project"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("from project.work import main\nmain()\n")
    (package / "work.py").write_text(SCRIPT)
    return tmp_path


EXPECTED = "densecrf.drop_in.pydensecrf.densecrf (2, 6)"


def test_script_with_arguments(folder):
    done = run("script.py", "--flag", "x", cwd=folder)
    assert (done.stdout.strip(), done.stderr) == (f"{EXPECTED} __main__ --flag x", "")


def test_script_in_another_folder_finds_its_neighbours(folder):
    (folder / "neighbour.py").write_text("VALUE = 3")
    (folder / "uses.py").write_text("import neighbour, pydensecrf.densecrf; print(neighbour.VALUE)")
    done = run(str(folder / "uses.py"), cwd=folder.parent)
    assert (done.stdout.strip(), done.stderr) == ("3", "")


def test_module(folder):
    done = run("-m", "project", "a", cwd=folder)
    assert (done.stdout.strip(), done.stderr) == (f"{EXPECTED} project.work a", "")


def test_code(folder):
    done = run("-c", "import pydensecrf.utils as u, sys; print(u.__name__, sys.argv)", cwd=folder)
    assert done.stdout.strip() == "densecrf.drop_in.pydensecrf.utils ['-c']"


OWN = """
import pydensecrf.densecrf as dcrf
VALUE = dcrf.__name__
"""
USES_OWN = """
import sys
import numpy as np
import densecrf
from densecrf import VALUE

if __name__ == "__main__":
    d = densecrf.dcrf.DenseCRF2D(3, 2, 2)
    d.setUnaryEnergy(np.eye(2, 6, dtype=np.float32))
    d.addPairwiseGaussian(sxy=1, compat=0.1)
    print(VALUE, densecrf.__file__, d.inference(2).shape, d.solve("lp").labels.shape)
"""


@pytest.mark.parametrize("package", [False, True])
@pytest.mark.parametrize("away", [False, True])
def test_program_with_a_module_called_densecrf(folder, package, away):
    own = folder / ("densecrf/__init__.py" if package else "densecrf.py")
    own.parent.mkdir(exist_ok=True)
    own.write_text(OWN)
    (folder / "uses_own.py").write_text(USES_OWN)
    done = run(str(folder / "uses_own.py"), cwd=folder.parent if away else folder)
    expected = f"densecrf.drop_in.pydensecrf.densecrf {own} (2, 6) (2, 3)"
    assert (done.stdout.strip(), done.stderr) == (expected, "")


def test_functions_of_code_in_a_pool(folder):
    code = "from multiprocessing import get_context\ndef double(x): return 2 * x\n"
    code += "print(get_context('fork').Pool(1).map(double, [1, 2]), __name__)"
    done = run("-c", code, cwd=folder)
    assert (done.stdout.strip(), done.stderr) == ("[2, 4] __main__", "")


def test_processes_that_it_starts(folder):
    done = run("children.py", cwd=folder)
    assert (done.stdout.strip(), done.stderr) == ("['densecrf.drop_in.pydensecrf.densecrf']", "")


def test_exit_code_and_traceback_are_the_programs_own(folder):
    (folder / "fails.py").write_text("import sys; sys.exit(7)")
    assert run("fails.py", cwd=folder).returncode == 7


def test_usage_where_nothing_or_nonsense_is_named(folder):
    assert run(cwd=folder).returncode == 2
    assert run("--help", cwd=folder).stdout.startswith("usage:")
    missing = run("nowhere.py", cwd=folder)
    assert missing.returncode == 1
    assert missing.stderr.startswith("nowhere.py: no such file")


def test_threads_are_set_by_the_environment_and_by_a_call(folder):
    code = (
        "import pydensecrf.densecrf as d; from densecrf.native import core\n"
        "print(core().available_threads()); d.set_num_threads(2)\n"
        "print(core().available_threads()); d.set_num_threads(None)\n"
        "print(core().available_threads() >= 1)"
    )
    env = {**os.environ, "DENSECRF_NUM_THREADS": "3"}
    assert run("-c", code, cwd=folder, env=env).stdout.split() == ["3", "2", "True"]
