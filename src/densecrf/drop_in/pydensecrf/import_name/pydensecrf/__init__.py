"""The import name ``pydensecrf``, for child processes of `drop_in.pydensecrf.__main__` alone.

The program may have a module of its own called ``densecrf``, imported already or not.
"""

import sys
from pathlib import Path

folder = Path(__file__).resolve().parents[1]
root = folder.parents[3]
theirs = sys.modules.get("densecrf")
if theirs is not None and theirs.__file__ != str(root / "densecrf" / "__init__.py"):
    del sys.modules["densecrf"]
else:
    theirs = None
sys.path.insert(0, str(root))
try:
    from densecrf.drop_in.pydensecrf import install, make_way, restore
finally:
    sys.path.remove(str(root))
del sys.modules[__name__]
install()
if theirs is not None:
    restore(theirs)
elif str(folder) in sys.path:
    for before in sys.path[: sys.path.index(str(folder))]:
        make_way(before)
