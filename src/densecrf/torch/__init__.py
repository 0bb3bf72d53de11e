"""Dense CRFs on torch tensors, on CPU and GPU; needs no compiled core."""

from densecrf.torch.lattice import Lattice, apply_sum, ordered_sum

__all__ = ["Lattice", "apply_sum", "ordered_sum"]
