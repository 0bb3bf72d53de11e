"""The GPU back end, checked and measured on one card: `python -m benchmarks.gpu`."""
