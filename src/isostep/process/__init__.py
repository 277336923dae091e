"""Stochastic processes: what the SDE of each component is."""

from isostep.process.base import LinearStep, Marginal, Process, noisier_step
from isostep.process.bridge import Bridge
from isostep.process.registry import PROCESSES, make_process
from isostep.process.score_sde import VE, VP, ScoreSde, SubVP
from isostep.process.sde import DriftSde, Evaluation, FlowSde, ProcessSde, Sde, as_sde

__all__ = [
    "PROCESSES",
    "VE",
    "VP",
    "Bridge",
    "DriftSde",
    "Evaluation",
    "FlowSde",
    "LinearStep",
    "Marginal",
    "Process",
    "ProcessSde",
    "ScoreSde",
    "Sde",
    "SubVP",
    "as_sde",
    "make_process",
    "noisier_step",
]
