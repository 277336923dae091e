"""Isostep: equal-information sampling for graph diffusion models."""

__version__ = "0.1.0"
