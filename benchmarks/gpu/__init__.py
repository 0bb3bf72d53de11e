"""The GPU back end, checked and measured on one card: see RESULTS_GPU.md beside this folder."""
