"""Drop-in modules for scripts written for pydensecrf.

Replace ``import pydensecrf.densecrf as dcrf`` by
``import densecrf.drop_in.pydensecrf.densecrf as dcrf`` (and ``pydensecrf.utils`` likewise), or call
`install` once and leave the imports as they are. The numbers are those of pydensecrf;
``d.solve("lp")`` adds a labelling with a certificate.
"""

import sys
import warnings

from densecrf.drop_in.pydensecrf import densecrf, eigen, utils

__all__ = ["densecrf", "eigen", "install", "utils"]


def install() -> None:
    """Register these modules as ``pydensecrf``, ``pydensecrf.densecrf``, ``.utils`` and ``.eigen``.

    Later imports of those names, in any module, find this package. Call it before them: what was
    imported from another pydensecrf earlier stays as it is, with a warning.
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
            f"{', '.join(earlier)} had been imported before densecrf.drop_in.pydensecrf.install(); "
            "names taken from there still belong to the other package. Call install() first",
            stacklevel=2,
        )
    sys.modules.update(ours)
