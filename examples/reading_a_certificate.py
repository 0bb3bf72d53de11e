"""A certificate closing: the energy falls, the bound rises, and the optimum lies between."""

from matplotlib.figure import Figure
from show import save

import densecrf
from densecrf.model.scribbles import scribble_unary

scene = densecrf.data.astronaut()  # the astronaut, six labels
image = scene.image[::2, ::2]
strokes = scene.scribbles[::2, ::2]
crf = densecrf.DenseCRF(
    scribble_unary(image, strokes, len(scene.classes), certainty=0.95),
    [
        densecrf.Spatial(sigma=2, weight=4),
        densecrf.Bilateral(image, sigma_xy=8, sigma_color=10, weight=10),
    ],
)
mf = crf.solve("mf")
lp = crf.solve("lp", gap=1e-3)
print(lp)
print(densecrf.certify(crf, mf.labels))

figure = Figure(figsize=(9, 4), layout="constrained")
axes = figure.subplots()
calls = lp.trace.ordered_calls
bound = [low for low in lp.trace.lower_bound if low is not None]
known = calls[len(calls) - len(bound) :]
axes.plot(calls, lp.trace.energy, color="#0a7d34", lw=2, label="energy of the best labelling (lp)")
axes.plot(known, bound, color="0.5", lw=2, label="lower bound of all labellings")
axes.fill_between(
    calls[-len(bound) :], bound, lp.trace.energy[-len(bound) :], color="0.5", alpha=0.25
)
axes.axhline(mf.energy, color="#c1121f", ls="--", label="mean field, converged")
axes.set_ylim(lp.energy * 0.93, max(mf.energy, lp.trace.energy[0]) * 1.01)
axes.set_xlabel("ordered filter calls")
axes.set_ylabel("energy")
axes.set_title(f"proven to {100 * lp.gap:.2f} %: the optimum is in the grey area")
axes.legend(loc="upper right")
save(figure, "reading_a_certificate")
