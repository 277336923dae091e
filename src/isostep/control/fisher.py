"""Equal Fisher-Rao steps of one decision, in closed form.

An entry that is its true class with probability a at the start and is told more and more of it has the probability
q = a + (1 - a) t at time t. In the Fisher-Rao metric q is at the angle arcsin(sqrt(q)), so equal steps of the angle are

    t(u) = (sin^2(th + u (pi/2 - th)) - a) / (1 - a),   th = arcsin(sqrt(a)),   u = i/N

a = 1/2 is the cosine grid, a -> 1 the quadratic one, a -> 0 is dense at both ends. For classes with the frequencies p_k
in the training data a = sum p_k^2.
"""

from __future__ import annotations

import math

from isostep.base.errors import InputError
from isostep.control.grid import Grid, check_steps


def fisher(steps: int, a: float = 0.5) -> Grid:
    check_steps(steps)
    if not 0 <= a < 1:
        raise InputError(f"a, the chance of the true class at the start, is at least 0 and below 1, got {a}")
    start = math.asin(math.sqrt(a))
    inner = [
        # sin^2 x - sin^2 y without cancellation as a tends to 1
        math.sin(i / steps * (math.pi / 2 - start)) * math.sin(2 * start + i / steps * (math.pi / 2 - start)) / (1 - a)
        for i in range(steps)
    ]
    return Grid((*inner, 1.0))
