"""The steps of the solvers on each back end; see `densecrf.backend.Steps`."""
