"""The paper's evaluation and our own studies, run from a checkout: ``python -m experiments``."""
