"""Run a program written for pydensecrf, unchanged: ``python -m densecrf.pydensecrf script.py``.

As Python itself: ``script.py args``, ``-m module args`` or ``-c code args``. Every ``import
pydensecrf`` in it, in the modules that it imports and in processes that it starts finds the
modules of `densecrf.pydensecrf`, whether pydensecrf is installed or not.
"""

import os
import runpy
import sys
from pathlib import Path
from types import ModuleType

from densecrf.pydensecrf import install

USAGE = "usage: python -m densecrf.pydensecrf (script.py | -m module | -c code) [arguments]"
#: A folder whose one package is called pydensecrf; child processes find it on their path.
IMPORT_NAME = Path(__file__).with_name("import_name")


def main(arguments: list[str]) -> None:
    """Run what the arguments name as the main program."""
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
        sys.path[0] = "" if first == "-c" else str(Path.cwd())
        sys.argv = [first, *rest[1:]]
        if first == "-m":
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            program = sys.modules["__main__"] = ModuleType("__main__")  # whose functions pickle
            exec(compile(rest[0], "<string>", "exec"), vars(program))
        return
    if not Path(first).exists():
        raise SystemExit(f"{first}: no such file\n{USAGE}")
    sys.path[0] = str(Path(first).resolve().parent)
    sys.argv = [first, *rest]
    runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
