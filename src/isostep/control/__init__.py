"""Controllers: when to step."""

from isostep.control.base import Controller, Measured, Proposal, Review
from isostep.control.dvs import Dvs
from isostep.control.grid import Grid, cosine, gdss, karras, power, quadratic, uniform

__all__ = [
    "Controller",
    "Dvs",
    "Grid",
    "Measured",
    "Proposal",
    "Review",
    "cosine",
    "gdss",
    "karras",
    "power",
    "quadratic",
    "uniform",
]
