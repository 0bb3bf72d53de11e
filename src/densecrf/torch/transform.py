"""A dictionary transform as in MONAI; MONAI is not required."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from densecrf.torch.inputs import as_tensor
from densecrf.torch.layer import DenseCRF
from densecrf.validation import check_choice

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

__all__ = ["DenseCRFd"]


class DenseCRFd:
    """Refine one entry of a dictionary of channel-first arrays, using the image in another.

    Parameters
    ----------
    pred_key, image_key : hashable
        Keys of the scores (C, *spatial), which are replaced, and of the image (k, *spatial).
    scores : {"logits", "probabilities"}
        The kind of scores.
    output : {"log_probabilities", "probabilities", "labels"}
        The kind of output; labels have one channel, (1, *spatial).
    **options
        Passed to `DenseCRF`.

    Examples
    --------
    >>> transform = DenseCRFd("pred", "image", output="labels", bilateral_sigma_xy=4.0)
    >>> data = {"pred": torch.randn(3, 8, 8), "image": torch.zeros(1, 8, 8), "name": "case 1"}
    >>> refined = transform(data)
    >>> tuple(refined["pred"].shape), refined["name"]
    ((1, 8, 8), 'case 1')
    """

    def __init__(
        self,
        pred_key: Hashable = "pred",
        image_key: Hashable = "image",
        *,
        scores: str = "logits",
        output: str = "labels",
        **options: Any,
    ) -> None:
        self.pred_key, self.image_key = pred_key, image_key
        self.scores = check_choice("scores", scores, ("logits", "probabilities"))
        self.output = check_choice(
            "output", output, ("log_probabilities", "probabilities", "labels")
        )
        self.crf = DenseCRF(**options)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Return a copy of the dictionary with the scores replaced."""
        out = dict(data)
        for key in (self.pred_key, self.image_key):
            if key not in out:
                raise KeyError(f"{key!r} is not in the data; it has {list(out)}")
        pred = as_tensor(str(self.pred_key), out[self.pred_key])
        image = as_tensor(str(self.image_key), out[self.image_key])
        if self.scores == "probabilities":
            pred = pred.clamp(min=1e-5).log()
        with torch.no_grad():
            refined = self.crf.to(pred.device)(logits=pred[None], image=image[None])[0]
        if self.output == "labels":
            refined = refined.argmax(0, keepdim=True)
        elif self.output == "probabilities":
            refined = refined.exp()
        out[self.pred_key] = refined
        return out
