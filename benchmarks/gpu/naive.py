"""The lattice filter as one writes it first: plain torch operations, none of them fused.

Vertices by `torch.unique`, neighbours by `searchsorted`, splat by `scatter_add_`, blur by gathers,
one label after the other. What the kernels of `densecrf.torch` are measured against.
"""

import torch

from densecrf.torch.geometry_torch import embed


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
        labels, n = scores.shape
        t = (scores * (levels - 1)).T
        bins = t.floor().clamp(max=levels - 2).long()
        f = t - bins
        out = torch.empty_like(t)
        for label in range(labels):
            low, share = bins[:, label], f[:, label]
            flat = torch.zeros((self.vertices + 1) * levels, device=t.device)
            places = self.corner * levels + low[:, None]
            for k in range(self.corner.shape[1]):
                flat.scatter_add_(0, places[:, k], self.weight[:, k] * (1 - share))
                flat.scatter_add_(0, places[:, k] + 1, self.weight[:, k] * share)
            values = flat.view(-1, levels)
            for plus, minus in self.neighbour:
                blurred = values[:-1] + 0.5 * (values[plus] + values[minus])
                values = torch.cat([blurred, values[-1:]])
            sums = values.cumsum(1)
            flat = (2 * sums - values - sums[:, -1:]).reshape(-1)
            result = torch.zeros(n, device=t.device)
            for k in range(self.corner.shape[1]):
                value = flat[places[:, k]] * (1 - share) + flat[places[:, k] + 1] * share
                result += self.weight[:, k] * value
            out[:, label] = result * self.scale
        return out.T
