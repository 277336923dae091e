"""Sampling: the loop, its result, and runs of many graphs."""

from isostep.sampling.loop import StepInfo, integrate
from isostep.sampling.solution import IntegrationError, Solution, Status, Trace

__all__ = ["IntegrationError", "Solution", "Status", "StepInfo", "Trace", "integrate"]
