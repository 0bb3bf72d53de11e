"""``densecrf demo``: strokes on two photographs, mean field against the certified linear program.

The photographs are scikit-image's (``pip install "densecrf[demo]"``), the strokes are here.
"""

from densecrf.cli.demo.command import demo
from densecrf.cli.demo.picture import write_picture
from densecrf.cli.demo.proof import proven
from densecrf.cli.demo.scenes import SCENES, Comparison, Scene, compare

__all__ = ["SCENES", "Comparison", "Scene", "compare", "demo", "proven", "write_picture"]
