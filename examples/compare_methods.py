"""All twelve methods on one energy: distance from the best bound, and time."""

import warnings

from matplotlib.figure import Figure
from show import save

import densecrf
from densecrf.model.scribbles import scribble_unary

scene = densecrf.data.coffee()  # the cup, two labels
image = scene.image[::2, ::2]
strokes = scene.scribbles[::2, ::2]
crf = densecrf.DenseCRF(
    scribble_unary(image, strokes, len(scene.classes), certainty=0.95),
    [
        densecrf.Spatial(sigma=2, weight=3),
        densecrf.Bilateral(image, sigma_xy=10, sigma_color=8, weight=8),
    ],
)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about constant labellings of lower energy
    results = [crf.solve(method) for method in densecrf.METHODS]
best = max(result.lower_bound for result in results if result.lower_bound is not None)

figure = Figure(figsize=(9, 4), layout="constrained")
axes = figure.subplots()
for place, result in enumerate(results):
    above = 100 * (result.energy - best) / best
    print(f"{result.method:<12} {above:6.2f} % above the bound, {result.seconds:.2f} s")
    certified = result.gap is not None
    axes.barh(place, above, color="#0a7d34" if result.method == "lp" else "0.6")
    proven = f", own gap {100 * result.gap:.2g} %" if certified else ""
    axes.text(above, place, f"  {above:.2f} %{proven}", va="center", fontsize=9)
axes.set_yticks(range(len(results)), [result.method for result in results])
axes.invert_yaxis()
axes.set_xlim(0, 1.35 * max(100 * (result.energy - best) / best for result in results))
axes.set_xlabel("energy above the best lower bound, per cent")
axes.spines[["top", "right"]].set_visible(False)
save(figure, "compare_methods")
