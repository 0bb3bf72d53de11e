# %% [markdown]
# # Certificates, and how to choose parameters
#
# `lp` proves how far its labelling is from the optimum at most. That separates two questions that
# otherwise look alike: is a labelling bad because the solver stopped short of the optimum, or
# because the optimum itself is bad?

# %%
import numpy as np
from skimage import data

import densecrf

image = np.ascontiguousarray(data.coffee()[80:320:2, 120:480:2])
y, x = np.mgrid[: image.shape[0], : image.shape[1]]
inside = np.tanh(3 * (1 - ((x - 95) / 70) ** 2 - ((y - 58) / 50) ** 2))
rng = np.random.default_rng(0)
scores = 1 / (1 + np.exp(-(2.0 * inside + rng.normal(0, 1.0, inside.shape))))
probabilities = np.stack([1 - scores, scores])

kernels = [
    densecrf.Spatial(sigma=3, weight=1),
    densecrf.Bilateral(image, sigma_xy=40, sigma_color=13, weight=2),
]
crf = densecrf.DenseCRF.from_probabilities(probabilities, kernels)
crf

# %% [markdown]
# ## Is it the optimum?
#
# Mean field has an energy and nothing to compare it with. `lp` also has a bound: no labelling is
# below it.

# %%
found = {method: crf.solve(method) for method in ("unary", "mf", "lp")}
bound = found["lp"].lower_bound
for method, result in found.items():
    above = result.energy / bound - 1
    print(f"{method:6s} energy {result.energy:9.1f}, at most {above:8.3%} above the best")

# %%
found["lp"].plot(image=image)

# %% [markdown]
# Anyone who has the model can check the certificate: independent code recomputes it in double
# precision from the stored dual potentials.

# %%
crf.solve("lp", keep_dual=True).verify()

# %% [markdown]
# ## Is it what you want?
#
# Every result is within a thousandth of the optimum, so what remains to choose is the energy.
# `strength` multiplies the pairwise weights: too little leaves noise, too much makes borders follow
# the image alone, and `refine` warns when many confident pixels change.

# %%
for strength in (0.0, 0.25, 0.5, 1.0, 2.0, 4.0):
    answer = densecrf.refine(image, probabilities, axis=0, strength=strength)
    cup = (answer.labels == 1).mean()
    print(f"strength {strength:4.2f}: cup {cup:5.1%} of the pixels, gap {answer.gap:.1e}")

# %% [markdown]
# With ground truth for some images, `densecrf.fit` finds the parameters; without, `densecrf.adapt`
# finds a strength and a label prior from the network's output alone. `refine(model=...)`,
# `densecrf segment --model` and the app take the result.

# %%
model = densecrf.adapt([image], [probabilities])
densecrf.refine(image, probabilities, axis=0, model=model)
