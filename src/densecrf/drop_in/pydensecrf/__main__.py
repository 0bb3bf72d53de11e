"""Run a program for pydensecrf, unchanged: ``python -m densecrf.drop_in.pydensecrf script.py``.

The arguments are those of Python: ``script.py args``, ``-m module args`` or ``-c code args``. Every
``import pydensecrf`` in the program, in its modules and in its child processes finds the modules of
`densecrf.drop_in.pydensecrf`, whether pydensecrf is installed or not.
"""

import os
import runpy
import sys
from pathlib import Path
from types import ModuleType

from densecrf.drop_in.pydensecrf import install, make_way

USAGE = "usage: python -m densecrf.drop_in.pydensecrf (script.py | -m module | -c code) [arguments]"
#: A folder whose one package is called pydensecrf; child processes find it on their path.
IMPORT_NAME = Path(__file__).with_name("import_name")


def main(arguments: list[str]) -> None:
    """Run the script, module or code of the arguments as the main program."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, file=sys.stdout if arguments else sys.stderr)
        raise SystemExit(0 if arguments else 2)
    install()
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(IMPORT_NAME), *filter(None, [inherited])])
    sys.path.insert(1, str(IMPORT_NAME))  # multiprocessing hands this list on
    first, rest = arguments[0], arguments[1:]
    if first in ("-m", "-c"):
        if not rest:
            raise SystemExit(f"argument expected for {first}\n{USAGE}")
        _begin_path(str(Path.cwd()) if first == "-m" else "")
        sys.argv = [first, *rest[1:]]
        if first == "-m":
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            program = sys.modules["__main__"] = ModuleType("__main__")  # whose functions pickle
            exec(compile(rest[0], "<string>", "exec"), vars(program))
        return
    if not Path(first).exists():
        raise SystemExit(f"{first}: no such file\n{USAGE}")
    _begin_path(str(Path(first).resolve().parent))
    sys.argv = [first, *rest]
    runpy.run_path(first, run_name="__main__")


def _begin_path(folder: str) -> None:
    """Put the program's folder first in the search path, as Python does."""
    if getattr(sys.flags, "safe_path", False):  # python -P adds no folder of the program
        sys.path.insert(0, folder)
    else:
        sys.path[0] = folder
    make_way(folder or str(Path.cwd()))


def run() -> None:
    """Run the program that the command line names."""
    main(sys.argv[1:])


if __name__ == "__main__":
    run()
