"""``densecrf demo``: strokes on two photographs, mean field against the certified linear program.

The photographs and strokes are those of `densecrf.data`.
"""

from densecrf.cli.demo.command import demo
from densecrf.cli.demo.picture import write_picture
from densecrf.cli.demo.proof import Comparison, compare, proven

__all__ = ["Comparison", "compare", "demo", "proven", "write_picture"]
