"""For MONAI: the block ``monai.networks.blocks.CRF``, and an optimiser for scribbles.

`CRF` has the signature and the update of MONAI's block, which MONAI's wheels do not compile. It
runs on CPU and CUDA, in 1-D to 3-D, with any number of classes and with gradients.
`ApplyDenseCRFOptimisationd` replaces MONAI Label's graph cut, for any number of labels. Neither
imports MONAI: its ``Compose`` takes any callable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from densecrf.model.crf import DenseCRF
from densecrf.model.kernels import Bilateral, Kernel, Spatial
from densecrf.model.scribbles import scribble_unary
from densecrf.model.unaries import from_probabilities, plant
from densecrf.operators.torch.autograd import filtered
from densecrf.operators.torch.features import positions
from densecrf.operators.torch.lattice import Lattice, on_device
from densecrf.torch.batches import batched, working_dtype
from densecrf.torch.inputs import as_tensor, check_finite, checked_pair
from densecrf.validation import ArgumentError, check_integer, check_positive

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from torch import Tensor

    from densecrf.solvers.result import Result

__all__ = ["CRF", "ApplyDenseCRFOptimisationd"]


class CRF(torch.nn.Module):
    r"""Mean field with a bilateral and a Gaussian kernel, updated as MONAI's block does.

    .. math:: Q \gets \operatorname{softmax}\bigl(\text{input} + u\,(w_b \bar K_b Q
              + w_g \bar K_g Q)\,C\bigr)

    with kernels normalised by their row sums; C is the optional compatibility matrix. The lattice
    blurs in one direction, as MONAI's does on the CPU, and meets its published test values to
    1e-6. On CUDA, MONAI's values differ; this block has the same on every device.

    Parameters
    ----------
    iterations : int
        Number of iterations.
    bilateral_weight, gaussian_weight : float
        Weights of the two kernels.
    bilateral_spatial_sigma, bilateral_color_sigma : float
        Standard deviations of the bilateral kernel: pixels, and the reference's units.
    gaussian_spatial_sigma : float
        Standard deviation of the Gaussian kernel, in pixels.
    update_factor : float
        Factor of each update.
    compatibility_matrix : Tensor, (classes, classes), optional
        Applied to the combined messages.

    Examples
    --------
    >>> crf = CRF(iterations=2)
    >>> q = crf(torch.randn(1, 3, 4, 5, 6), torch.rand(1, 1, 4, 5, 6))
    >>> tuple(q.shape), bool(torch.allclose(q.sum(1), torch.ones(())))
    ((1, 3, 4, 5, 6), True)
    """

    def __init__(
        self,
        iterations: int = 5,
        bilateral_weight: float = 1.0,
        gaussian_weight: float = 1.0,
        bilateral_spatial_sigma: float = 5.0,
        bilateral_color_sigma: float = 0.5,
        gaussian_spatial_sigma: float = 5.0,
        update_factor: float = 3.0,
        compatibility_matrix: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.iterations = check_integer("iterations", iterations, at_least=0)
        self.bilateral_weight, self.gaussian_weight = bilateral_weight, gaussian_weight
        self.bilateral_spatial_sigma = bilateral_spatial_sigma
        self.bilateral_color_sigma = bilateral_color_sigma
        self.gaussian_spatial_sigma = gaussian_spatial_sigma
        for name in ("bilateral_spatial_sigma", "bilateral_color_sigma", "gaussian_spatial_sigma"):
            check_positive(name, getattr(self, name))
        self.update_factor = update_factor
        self.compatibility_matrix = compatibility_matrix

    def forward(self, input_tensor: Tensor, reference_tensor: Tensor) -> Tensor:
        """Return the marginals (N, C, *spatial).

        Parameters
        ----------
        input_tensor : Tensor, (N, C, *spatial)
            Logits.
        reference_tensor : Tensor, (N, k, *spatial)
            Image or volume.
        """
        names = "input_tensor", "reference_tensor"
        logits, reference = checked_pair(input_tensor, reference_tensor, names)
        check_finite("input_tensor", logits)
        check_finite("reference_tensor", reference)
        with on_device(logits.device):
            dtype = working_dtype(logits)
            lattices = self._lattices(reference, dtype)
            scores = logits.transpose(0, 1).flatten(1).to(dtype)  # (classes, items · pixels)
            q = torch.softmax(scores, 0)
            for _ in range(self.iterations):
                received = sum(
                    weight * filtered(lattice, q) / lattice.mass for weight, lattice in lattices
                )
                if self.compatibility_matrix is not None:
                    received = self.compatibility_matrix.to(scores).T @ received
                q = torch.softmax(scores + self.update_factor * received, 0)
        return batched(q, logits)

    def _lattices(self, reference: Tensor, dtype: torch.dtype) -> list[tuple[float, Lattice]]:
        """Return the two kernels' weights and filters.

        The order of the features is that of the blurs; MONAI has the first axis first.
        """
        with torch.no_grad():
            one = torch.ones((), dtype=torch.float64)
            grid = positions(reference.shape[2:], one, reference.device).flip(1)
            grid = grid.expand(reference.shape[0], -1, -1)
            values = reference.double().flatten(2).transpose(1, 2)
            wide, color = self.bilateral_spatial_sigma, self.bilateral_color_sigma
            similar = torch.cat([grid / wide, values / color], 2)
            near = grid / self.gaussian_spatial_sigma
            both = Lattice.build_all([similar.to(dtype), near.to(dtype)], order="forward")
        return list(zip((self.bilateral_weight, self.gaussian_weight), both, strict=True))


class ApplyDenseCRFOptimisationd:
    """Turn strokes of several labels, with or without a network's probabilities, into labels.

    Parameters
    ----------
    image : hashable
        Key of the image or volume, (channels, *spatial).
    scribbles : hashable
        Key of the strokes, (1, *spatial): values of `labels`; other values are unlabelled.
    post_proc_label : hashable
        Key of the result, (1, *spatial) of int64: indices into `labels`.
    prob : hashable, optional
        Key of the network's probabilities, (labels, *spatial); without it, unaries come from the
        colours under the strokes.
    labels : sequence of int
        The strokes' values, in the order of the network's classes.
    sigma_xy, sigma_color, weight : float
        Bilateral kernel, `sigma_color` as a fraction of the image's range.
    sigma, spatial_weight : float
        Spatial kernel.
    method : str
        One of `densecrf.METHODS`.
    **options
        Passed to `densecrf.DenseCRF.solve`.

    The full `densecrf.Result`, with its certificate, is stored under
    ``f"{post_proc_label}_result"``.

    Examples
    --------
    >>> volume = np.zeros((1, 4, 6, 6)); volume[..., 3:] = 1
    >>> strokes = np.zeros((1, 4, 6, 6), int)
    >>> strokes[0, 0, 0, 0], strokes[0, 0, 0, 5] = 2, 3
    >>> transform = ApplyDenseCRFOptimisationd(scribbles="strokes", labels=(2, 3), sigma_xy=3)
    >>> transform({"image": volume, "strokes": strokes})["pred"][0, 3, 5].tolist()
    [0, 0, 0, 1, 1, 1]
    """

    def __init__(
        self,
        image: Hashable = "image",
        scribbles: Hashable = "scribbles",
        post_proc_label: Hashable = "pred",
        *,
        prob: Hashable | None = None,
        labels: tuple[int, ...] = (2, 3),
        sigma_xy: float = 15.0,
        sigma_color: float = 0.05,
        weight: float = 5.0,
        sigma: float = 1.5,
        spatial_weight: float = 1.0,
        method: str = "lp",
        **options: Any,
    ) -> None:
        self.image, self.scribbles, self.prob = image, scribbles, prob
        self.post_proc_label, self.labels = post_proc_label, tuple(labels)
        self.sigma_xy, self.weight = sigma_xy, weight
        self.sigma_color = check_positive("sigma_color", sigma_color)
        self.sigma, self.spatial_weight = sigma, spatial_weight
        self.method, self.options = method, options

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Return a copy of the dictionary with the labels."""
        out = dict(data)
        result = self._solve(out)
        out[self.post_proc_label] = torch.from_numpy(result.labels[None])
        out[f"{self.post_proc_label}_result"] = result
        return out

    def _solve(self, data: Mapping[Hashable, Any]) -> Result:
        image = np.moveaxis(self._array(data, self.image), 0, -1)
        strokes = self._array(data, self.scribbles)[0]
        image = (image - image.min()) / (np.ptp(image) or 1.0)
        index = np.full(strokes.shape, -1)
        for place, value in enumerate(self.labels):
            index[strokes == value] = place
        if self.prob is None:
            unary = scribble_unary(255 * image, index, len(self.labels))
        else:
            unary = from_probabilities(self._array(data, self.prob), axis=0)
        if unary.shape != (len(self.labels), *strokes.shape):
            remedy = f"shape {unary.shape}; give {(len(self.labels), *strokes.shape)}, labels first"
            raise ArgumentError(str(self.prob), ..., remedy)
        plant(unary, index)
        kernels: list[Kernel] = [
            Spatial(self.sigma, self.spatial_weight),
            Bilateral(image, self.sigma_xy, self.sigma_color, self.weight),
        ]
        return DenseCRF(unary, kernels).solve(self.method, **self.options)

    def _array(self, data: Mapping[Hashable, Any], key: Hashable) -> Any:
        if key not in data:
            raise KeyError(f"{key!r} is not in the data; it has {list(data)}")
        return as_tensor(str(key), data[key]).detach().cpu().numpy()
