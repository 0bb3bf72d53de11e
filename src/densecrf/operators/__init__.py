"""Gaussian filters, plain and in the order of scores.

A filter is built once from features; `Filter.apply` and `Filter.ordered` use it.
"""

from densecrf.operators.exact import ExactFilter
from densecrf.operators.grid import GridFilter
from densecrf.operators.lattice import LatticeFilter
from densecrf.operators.levels import ORDERS, Filter

__all__ = ["ORDERS", "ExactFilter", "Filter", "GridFilter", "LatticeFilter"]
