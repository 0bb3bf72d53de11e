"""Say in plain words what this machine lacks to build densecrf, before a tool fails obscurely.

Runs under whatever Python the user has, so it keeps to syntax that old versions understand.
"""

import os
import shutil
import sys
import sysconfig


def missing():
    """Return one line for each thing that is missing."""
    problems = []
    if sys.version_info < (3, 10):  # noqa: UP036
        version = "{}.{}".format(*sys.version_info[:2])
        problems.append("Python 3.10 or newer is needed, this is " + version)
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        problems.append(
            "this Python cannot create virtual environments (no ensurepip); "
            "on Debian and Ubuntu: apt install python3-venv"
        )
    header = os.path.join(sysconfig.get_paths()["include"], "Python.h")  # noqa: PTH118
    if not os.path.exists(header):  # noqa: PTH110
        problems.append(
            "Python's C headers are not installed (" + header + "); "
            "on Debian and Ubuntu: apt install python3-dev, on Fedora: dnf install python3-devel"
        )
    compilers = [os.environ.get("CXX", "").split(" ")[0], "c++", "g++", "clang++"]
    if not any(shutil.which(name) for name in compilers if name):
        problems.append("no C++ compiler found; on Debian and Ubuntu: apt install g++")
    return problems


if __name__ == "__main__":
    found = missing()
    for line in found:
        sys.stderr.write("densecrf: " + line + "\n")
    if found:
        sys.stderr.write("densecrf: or choose another Python: make PYTHON=/path/to/python3 ...\n")
    sys.exit(1 if found else 0)
