"""The proximal methods beside the authors' program, from the starting point that it had."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from densecrf import Bilateral, DenseCRF, Spatial
from densecrf.solvers.result import Result


def reference(shared_data: Path, name: str) -> tuple[DenseCRF, Any, dict[str, float]]:
    """The model, the program's labellings, and their energies as it printed them."""
    record = json.loads((shared_data / "reference" / "energies.json").read_text())[name]
    data = np.load(shared_data / "msrc_paper" / f"{record['image']}.npz")
    unary, image, p = data["unary"], data["image"], record["parameters"]
    if unary.shape[-1] != image.shape[1]:
        unary = np.moveaxis(unary, -1, 0)
    kernels = [  # weights of ordered pairs are half of ours
        Spatial(p["spatial_std"], 2 * p["spatial_weight"]),
        Bilateral(
            image,
            p["bilateral_xy_std"],
            p["bilateral_color_std"],
            weight=2 * p["bilateral_weight"],
        ),
    ]
    crf = DenseCRF(unary, kernels, normalization="none")
    return crf, np.load(shared_data / "reference" / f"{name}.npz"), record["energies"]


def solved(crf: DenseCRF, method: str, labellings: Any, **options: Any) -> Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return crf.solve(method, init=labellings["dc-neg"].reshape(crf.shape), **options)


@pytest.mark.parametrize("name", ["2_14_s_dc", "2_14_s_mf"])
def test_restricted_methods_end_below_the_authors_energy(shared_data: Path, name: str) -> None:
    crf, labellings, energies = reference(shared_data, name)
    for method in ("prox-lp-l", "prox-lp-acc"):
        result = solved(crf, method, labellings, warm=True)
        assert result.trace.energy[0] == pytest.approx(energies["dc-neg"], rel=1e-5)
        assert result.energy <= energies[method]
        assert result.energy == pytest.approx(crf.energy(result.labels), rel=1e-5)
        assert len(result.info["labels_kept"]) < crf.n_labels
        assert result.lower_bound is not None
        assert result.lower_bound <= crf.constant_energies().min()
        assert result.lower_bound <= min(energies.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["2_14_s_dc", "2_14_s_mf"])
def test_prox_lp_as_printed_ends_below_the_authors_energy(shared_data: Path, name: str) -> None:
    crf, labellings, energies = reference(shared_data, name)
    result = solved(crf, "prox-lp", labellings)
    assert result.energy <= energies["prox-lp"]
    assert result.lower_bound is not None
    assert result.lower_bound <= crf.constant_energies().min()
