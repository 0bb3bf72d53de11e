"""Drop-in modules for scripts written for pydensecrf.

Replace ``import pydensecrf.densecrf as dcrf`` by
``import densecrf.drop_in.pydensecrf.densecrf as dcrf`` (and ``pydensecrf.utils`` likewise), or call
`install` once and leave the imports as they are. The numbers are those of pydensecrf;
``d.solve("lp")`` adds a labelling with a certificate.
"""

import sys
import warnings
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType, SimpleNamespace
from typing import Any

from densecrf.drop_in.pydensecrf import densecrf, eigen, utils

__all__ = ["densecrf", "eigen", "install", "utils"]

_NAME = __name__.partition(".")[0]


def install() -> None:
    """Register these modules as ``pydensecrf``, ``pydensecrf.densecrf``, ``.utils`` and ``.eigen``.

    Later imports of those names, in any module, find this package. Call it first: names imported
    earlier from another pydensecrf stay as they are, with a warning.
    """
    ours = {
        "pydensecrf": sys.modules[__name__],
        "pydensecrf.densecrf": densecrf,
        "pydensecrf.utils": utils,
        "pydensecrf.eigen": eigen,
    }
    earlier = [name for name, module in ours.items() if sys.modules.get(name) not in (None, module)]
    if earlier:
        warnings.warn(
            f"{', '.join(earlier)} was imported before densecrf.drop_in.pydensecrf.install(); "
            "names taken from there still belong to the other package. Call install() first",
            stacklevel=2,
        )
    sys.modules.update(ours)


# A program that uses pydensecrf often has its own module ``densecrf``. Its ``import densecrf`` must
# find that module, while the modules of this package must still find each other.


def make_way(folder: str) -> None:
    """Let ``import densecrf`` find a module of that name in this folder, if there is one.

    Its search path leads to this package, whose modules may be loaded later.
    """
    ours = sys.modules[_NAME]
    spec = PathFinder.find_spec(_NAME, [folder])
    if spec is None or spec.origin is None or spec.origin == ours.__file__:
        return
    spec.submodule_search_locations = [*(spec.submodule_search_locations or ()), *ours.__path__]
    del sys.modules[_NAME]

    def find_spec(fullname: str, *_: Any) -> ModuleSpec | None:
        return spec if fullname == _NAME else None

    finder: Any = SimpleNamespace(find_spec=find_spec)
    sys.meta_path.insert(0, finder)


def restore(theirs: ModuleType) -> None:
    """Put the program's module, imported before this package, in its place again."""
    theirs.__path__ = [*getattr(theirs, "__path__", ()), *sys.modules[_NAME].__path__]
    sys.modules[_NAME] = theirs
