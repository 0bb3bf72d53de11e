"""The lattice filter as one writes it first: plain torch operations, none of them fused.

Vertices by `torch.unique`, neighbours by `searchsorted`, splat by `scatter_add_`, blur by gathers.
What the kernels of `densecrf.torch` are measured against.
"""

import torch

from densecrf.operators.torch.topology import embed


class NaiveLattice:
    def __init__(self, features):
        d = features.shape[1]
        simplices = embed(features)
        self.weight = simplices.weight
        k = torch.arange(d + 1, device=features.device)
        steps = simplices.rank[:, None, :d] > (d - k)[None, :, None]
        corners = (d + 1) * (simplices.base.long()[:, None] - steps.long()) + k[None, :, None]
        low = corners.amin((0, 1)) - d - 1
        size = corners.amax((0, 1)) - low + d + 2
        places = torch.cat([size.flip(0).cumprod(0).flip(0)[1:], size.new_ones(1)])
        keys = ((corners - low) * places).sum(2)
        vertices, corner = torch.unique(keys, return_inverse=True)
        self.corner, self.vertices = corner, len(vertices)
        self.neighbour = [self._pair(vertices, places, d, axis) for axis in range(d + 1)]
        self.scale = 1 / (1 + 2.0**-d)

    def _pair(self, vertices, places, d, axis):
        """Vertices one step along +axis and -axis; one past the last where there is none."""
        shift = -places.sum() + ((d + 1) * places[axis] if axis < d else 0)
        pair = []
        for wanted in (vertices + shift, vertices - shift):
            at = torch.searchsorted(vertices, wanted).clamp(max=self.vertices - 1)
            pair.append(torch.where(vertices[at] == wanted, at, self.vertices))
        return pair

    def ordered(self, scores, levels=10):
        """Filter the order of scores in [0, 1], soft levels, axes in the forward order."""
        labels = len(scores)
        t = (scores * (levels - 1)).T.contiguous()
        low = t.floor().clamp(max=levels - 2).long()
        share = t - low
        label = torch.arange(labels, device=t.device)
        flat = torch.zeros((self.vertices + 1) * labels * levels, device=t.device)
        places = [(self.corner[:, k, None] * labels + label) * levels + low for k in self._corners]
        for k in self._corners:
            weight = self.weight[:, k, None]
            flat.scatter_add_(0, places[k].view(-1), (weight * (1 - share)).view(-1))
            flat.scatter_add_(0, places[k].view(-1) + 1, (weight * share).view(-1))
        values = flat.view(self.vertices + 1, -1)
        for plus, minus in self.neighbour:
            blurred = values[:-1] + 0.5 * (values[plus] + values[minus])
            values = torch.cat([blurred, values[-1:]])
        values = values.view(-1, labels, levels)
        sums = values.cumsum(2)
        flat = (2 * sums - values - sums[..., -1:]).reshape(-1)
        result = torch.zeros_like(t)
        for k in self._corners:
            value = flat[places[k]] * (1 - share) + flat[places[k] + 1] * share
            result += self.weight[:, k, None] * value
        return result.T * self.scale

    @property
    def _corners(self):
        return range(self.corner.shape[1])
