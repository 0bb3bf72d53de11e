"""The operator K on torch tensors: lattices, their filters and gradients."""
