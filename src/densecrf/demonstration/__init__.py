"""A first look: strokes on two photographs, mean field against the certified linear program.

The photographs are scikit-image's (``pip install "densecrf[demo]"``), the strokes are here.
"""

from densecrf.demonstration.picture import write_picture
from densecrf.demonstration.proof import proven
from densecrf.demonstration.scenes import SCENES, Comparison, Scene, compare

__all__ = ["SCENES", "Comparison", "Scene", "compare", "proven", "write_picture"]
