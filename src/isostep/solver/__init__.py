"""Solvers: how to step from t0 to t1."""

from isostep.solver.base import Advance, NoiseSource, Solver, Span
from isostep.solver.euler import Euler
from isostep.solver.exponential import Exponential
from isostep.solver.heun import Heun
from isostep.solver.langevin import Corrected, Langevin
from isostep.solver.reverse import ReverseDiffusion
from isostep.solver.s4 import S4

__all__ = [
    "S4",
    "Advance",
    "Corrected",
    "Euler",
    "Exponential",
    "Heun",
    "Langevin",
    "NoiseSource",
    "ReverseDiffusion",
    "Solver",
    "Span",
]
