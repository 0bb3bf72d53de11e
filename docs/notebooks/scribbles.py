# %% [markdown]
# # From scribbles to labels
#
# `Scribble` is the canvas of the app in a notebook. Here the strokes come from Python, since nobody
# draws while this page is built.

# %%
import numpy as np
from skimage import data

from densecrf.widget import Scribble

image = np.ascontiguousarray(data.astronaut()[::2, ::2])
strokes = [
    {"tool": "brush", "label": 0, "size": 6, "points": [[105, 40], [125, 60], [115, 25]]},
    {"tool": "brush", "label": 1, "size": 6, "points": [[15, 20], [60, 25], [20, 90]]},
    {"tool": "brush", "label": 2, "size": 6, "points": [[60, 170], [110, 210]]},
]
canvas = Scribble(image, ["face", "background", "suit"], strokes=strokes)
canvas  # in Jupyter, VS Code, Colab or marimo: draw

# %% [markdown]
# `canvas.labels` and `canvas.result` are updated after every stroke. Without a canvas, it takes
# three lines: colour models of the strokes, an energy, its minimum.

# %%
from densecrf.app.strokes import Stroke, rasterise
from densecrf.model.presets import get_parameters
from densecrf.model.scribbles import scribble_unary

drawn = rasterise(map(Stroke.parse, strokes), image.shape[:2])
unary = scribble_unary(image, drawn)
result = get_parameters("default").crf(unary, image).solve()
result

# %%
result.plot(image=image)

# %% [markdown]
# ## One more stroke
#
# Add a stroke on the hair and solve again: the filters are reused, and the solver starts from the
# last result.

# %%
strokes.append({"tool": "brush", "label": 0, "size": 4, "points": [[90, 20], [95, 50]]})
drawn = rasterise(map(Stroke.parse, strokes), image.shape[:2])
better = result.crf.with_unary(scribble_unary(image, drawn)).solve(init=result)
print(better)
print(f"{(better.labels != result.labels).mean():.1%} of the pixels changed")

# %%
better.plot(image=image)
