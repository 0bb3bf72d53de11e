"""Point clouds in slabs: energies and bounds of the whole cloud."""

import numpy as np
import pytest

import densecrf
from densecrf.large import Kernel, refine, refine_points
from large_scenes import MODEL, crowd


def cloud(n=3000, seed=0):
    """Points of two rooms, their colours, and what is known of them."""
    rng = np.random.default_rng(seed)
    points = rng.random((n, 3)) * (20, 6, 3) + (1e5, 0, 0)
    truth = points[:, 0] - 1e5 < 11
    colors = np.where(truth[:, None], 0.3, 0.6) + rng.normal(0, 0.1, (n, 3))
    p = np.clip(np.where(truth, 0.65, 0.4) + rng.normal(0, 0.2, n), 0.02, 0.98)
    return points, colors, np.stack([1 - p, p]).astype(np.float32), truth


KERNELS = (Kernel(2.0, 0.4), Kernel(4.0, (1.0, 1.0, 0.8), 0.15))


def in_memory(points, colors, p):
    kernels = [
        densecrf.Features(points / 0.4, weight=2.0),
        densecrf.Features(np.hstack([points / (1.0, 1.0, 0.8), colors / 0.15]), weight=4.0),
    ]
    return densecrf.DenseCRF.from_probabilities(p, kernels)


@pytest.mark.parametrize("tile", [400, 1500, 10_000])
def test_energy_and_bound_are_the_whole_cloud_s(tile):
    points, colors, p, truth = cloud()
    crf = in_memory(points, colors, p)
    best = crf.solve("lp", gap=1e-4)
    result = refine_points(points, p, KERNELS, features=colors, tile=tile, gap=1e-3)
    assert result.energy == pytest.approx(crf.energy(result.labels), rel=1e-5)
    assert result.gap <= 1e-3
    assert result.lower_bound <= best.energy * (1 + 1e-9)
    assert (result.labels == best.labels).mean() > 0.99
    assert (result.labels == truth).mean() > 0.9


def test_files_and_mean_field(tmp_path):
    points, colors, p, _ = cloud(1200)
    for name, values in (("points", points), ("colors", colors), ("p", p)):
        np.save(tmp_path / f"{name}.npy", values)
    files = [tmp_path / f"{name}.npy" for name in ("points", "p")]
    out = tmp_path / "labels.npy"
    options = {"features": tmp_path / "colors.npy", "tile": 500, "method": "mf5"}
    result = refine_points(*files, KERNELS, out=out, **options)
    expected = in_memory(points, colors, p).solve("mf5")
    assert (np.load(out) == expected.labels).mean() > 0.999
    assert result.lower_bound is None
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "colors.npy",
        "labels.npy",
        "p.npy",
        "points.npy",
    ]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"points": np.zeros((5, 3))}, "probabilities.*5 points"),
        ({"points": np.full((60, 3), np.nan)}, "points"),
        ({"features": np.zeros((7, 2))}, "features.*60 points"),
        ({"kernels": [Kernel(1, 0.0)]}, "positions"),
        ({"kernels": [Kernel(1, 1, 1)]}, "colors.*only positions"),
        ({"out": "labels.tif"}, r"out.*\.npy"),
    ],
)
def test_bad_input_is_named(changed, message):
    points, _, p, _ = cloud(60)
    given = {"points": points, "probs": p, "kernels": [Kernel(1, 1)], **changed}
    with pytest.raises(ValueError, match=message):
        refine_points(**given)


def test_own_kernels_of_an_image():
    image, p = crowd()
    kernels = [
        Kernel(MODEL.weight, MODEL.sigma),
        Kernel(MODEL.bilateral_weight, MODEL.sigma_xy, MODEL.sigma_color),
        Kernel(1.5, (8, 4)),
    ]
    result = refine(image, p, tile=30, model=MODEL, kernels=kernels, axis=0, gap=5e-3)
    own = [*MODEL.kernels(image), densecrf.Spatial((8, 4), weight=1.5)]
    crf = densecrf.DenseCRF.from_probabilities(p, own)
    assert result.energy == pytest.approx(crf.energy(result.labels), rel=1e-5)
    assert result.gap <= 5e-3
