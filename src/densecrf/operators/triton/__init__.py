"""The torch back end's Triton kernels, their launchers, and plans that repeat launches cheaply."""
