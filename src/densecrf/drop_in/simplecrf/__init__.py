"""Drop-in modules for scripts written for SimpleCRF: ``denseCRF`` and ``denseCRF3D``.

Replace ``import denseCRF`` by ``from densecrf.drop_in.simplecrf import denseCRF``.
"""

from densecrf.drop_in.simplecrf import denseCRF, denseCRF3D

__all__ = ["denseCRF", "denseCRF3D"]
