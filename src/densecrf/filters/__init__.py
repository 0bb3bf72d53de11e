"""Gaussian filters, plain and in the order of scores.

A filter is built once from features and answers two questions: `Filter.apply` and
`Filter.ordered`.
"""

from densecrf.filters.base import ORDERS, Filter
from densecrf.filters.exact import ExactFilter
from densecrf.filters.grid import GridFilter
from densecrf.filters.lattice import LatticeFilter

__all__ = ["ORDERS", "ExactFilter", "Filter", "GridFilter", "LatticeFilter"]
