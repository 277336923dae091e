"""Compiled helpers (Numba, extra `fast`). Each computes what a plain PyTorch function of the programs computes."""
