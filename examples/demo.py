"""A photograph, labels with half of the pixels wrong, and what the model makes of them.

Prints the energies of a few labellings and how exact and fast the filters are, and draws one
picture. Needs scikit-image (for the photograph) and Matplotlib: ``make demo``.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from scipy.cluster.vq import kmeans2
from skimage import color, data, filters

import densecrf
from densecrf.filters import GridFilter, LatticeFilter

TONES = 4  # labels: clusters of colour
WRONG = 0.5  # share of pixels whose label is replaced by a random one


def main() -> None:
    """Run the whole demonstration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("out") / "demo.png")
    parser.add_argument("--threads", type=int, default=None)
    arguments = parser.parse_args()
    image = data.coffee()
    truth = regions(image)
    noisy = spoiled(truth)
    crf = densecrf.DenseCRF.from_labels(
        noisy,
        TONES,
        [
            densecrf.Spatial(sigma=3, weight=1),
            densecrf.Bilateral(image, sigma_xy=40, sigma_color=12, weight=4),
        ],
        confidence=0.55,
    )
    print(crf, end="\n\n")
    solutions = {m: crf.solve(m, threads=arguments.threads) for m in ("mf5", "mf", "lp")}
    show_energies(crf, truth, solutions)
    print(f"\n{solutions['lp']}")
    show_filters(crf)
    draw(image, truth, noisy, solutions["lp"].labels, arguments.output)
    print(f"\npicture: {arguments.output}")


def regions(image: np.ndarray) -> np.ndarray:
    """Return the labels to be recovered: clusters of colour in the smoothed photograph."""
    smooth = filters.gaussian(image, 4, channel_axis=-1)
    lab = color.rgb2lab(smooth).reshape(-1, 3)
    _, labels = kmeans2(lab, TONES, seed=3, minit="++")
    return labels.reshape(image.shape[:2])


def spoiled(labels: np.ndarray) -> np.ndarray:
    """Return the labels with many replaced at random, and a corner that nobody labelled."""
    rng = np.random.default_rng(0)
    random = rng.integers(0, TONES, labels.shape)
    noisy = np.where(rng.random(labels.shape) < WRONG, random, labels)
    noisy[:80, :120] = 255
    return noisy


def show_energies(
    crf: densecrf.DenseCRF, truth: np.ndarray, solutions: dict[str, densecrf.Result]
) -> None:
    """Print the energy of each labelling, and how much of the truth it found."""
    print(f"{'labelling':<22}{'energy':>12}{'right':>9}{'seconds':>10}   proven within")
    constants = crf.constant_energies()
    best = int(constants.argmin())
    print(f"{f'all of tone {best}':<22}{constants[best]:>12,.0f}{(truth == best).mean():>9.1%}")
    unary = crf.unary.argmin(0).reshape(crf.shape)
    print(f"{'best unaries':<22}{crf.energy(unary):>12,.0f}{(truth == unary).mean():>9.1%}")
    for method, result in solutions.items():
        right = (result.labels == truth).mean()
        proven = "" if result.gap is None else f"   {result.gap:.3%} of the optimum"
        print(f"{method:<22}{result.energy:>12,.0f}{right:>9.1%}{result.seconds:>10.3f}{proven}")
    print(f"{'the truth':<22}{crf.energy(truth):>12,.0f}{1:>9.1%}")


def show_filters(crf: densecrf.DenseCRF) -> None:
    """Print how far each fast filter is from the exact Gaussian, and how long it takes."""
    values = np.random.default_rng(0).random((crf.n, 21), dtype=np.float32)
    rows = np.random.default_rng(1).choice(crf.n, 300, replace=False)
    columns = f"{'scale':>7}{'error':>8}{'build':>9}{'apply':>9}{'ordered':>9}"
    print(f"\n{'filter, 21 channels':<30}{columns}")
    for kernel in crf.kernels:
        features = kernel.features(crf.shape)
        exact = exact_rows(features, rows) @ np.concatenate([np.ones((crf.n, 1)), values], 1)
        engines = {"lattice": lambda features=features: LatticeFilter(features)}
        if isinstance(kernel, densecrf.Spatial):
            engines["grid"] = lambda kernel=kernel: GridFilter(crf.shape, kernel.sigma)
        for engine, build in engines.items():
            operator, built = timed(build)
            filtered, plain = timed(lambda operator=operator: operator.apply(values))
            _, ordered = timed(lambda operator=operator: operator.ordered(values))
            scale = float(np.median(operator.mass[rows] / exact[:, 0]))
            error = np.linalg.norm(filtered[rows] / scale - exact[:, 1:])
            error /= np.linalg.norm(exact[:, 1:])
            name = f"{type(kernel).__name__} {engine}, d = {features.shape[1]}"
            numbers = "".join(f"{1e3 * s:>6.0f} ms" for s in (built, plain, ordered))
            print(f"{name:<30}{scale:>7.2f}{error:>8.2%}{numbers}")


def exact_rows(features: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return rows of the exact kernel matrix."""
    distance = np.zeros((len(rows), len(features)), np.float32)
    for column in features.T:
        distance += (column[rows, None] - column[None, :]) ** 2
    return np.exp(-0.5 * distance)


def timed(call):
    """Return the result of a call and its time in seconds."""
    started = time.perf_counter()
    result = call()
    return result, time.perf_counter() - started


def draw(
    image: np.ndarray, truth: np.ndarray, noisy: np.ndarray, found: np.ndarray, path: Path
) -> None:
    """Draw the photograph and the labels before and after."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.colors import ListedColormap

    colours = ListedColormap(["#0072b2", "#e69f00", "#5b2c0a", "#c9c9c9"])
    figure, axes = plt.subplots(2, 2, figsize=(10, 7.2), layout="constrained")
    right = f"{(found == truth).mean():.1%}"
    given = f"{(noisy == truth).mean():.1%}"
    panels = {
        "photograph": image,
        f"labels given ({given} right; white: none)": np.ma.masked_equal(noisy, 255),
        f"certified linear program ({right} right)": found,
        "the truth": truth,
    }
    for axis, (title, picture) in zip(axes.flat, panels.items(), strict=True):
        axis.imshow(picture, cmap=colours, vmin=0, vmax=TONES - 1, interpolation="nearest")
        axis.set_title(title)
        axis.axis("off")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main()
