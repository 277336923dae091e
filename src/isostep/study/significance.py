"""Paired comparison of two arms over seeds.

With d_i = b_i - a_i for the seeds i = 1..n, mean d and standard deviation s:

    t = d / (s / sqrt(n)),   p = 2 P(T_(n-1) > |t|),   95 % interval  d +- t_(n-1, .975) s / sqrt(n)

Shares of few graphs come in steps, so that all d_i may be equal by chance. Then s says nothing: there is no interval,
and p is that of the signs alone, p = 2 / 2^n (all seeds on one side; 1 where every d_i is 0).

Many tests make some intervals miss 0 by chance: `holm` gives p values that hold for all of them together, and a
`verdict` follows from those.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from scipy.special import stdtr, stdtrit

from isostep.base.errors import InputError
from isostep.metric.base import Better

Verdict = Literal["better", "worse", "not distinguishable"]
CONFIDENCE = 0.95
ROUNDING = 1e-12  # of the values


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation (None for one value) of n values."""

    n: int
    mean: float
    sd: float | None


@dataclass(frozen=True)
class Paired:
    """Difference other - first over `n` pairs; a single pair has neither interval nor p, equal differences have no
    interval."""

    n: int
    difference: float
    low: float | None
    high: float | None
    p: float | None


def spread(values: Sequence[float]) -> Spread:
    n = len(values)
    if not n:
        raise InputError("no value to average; run at least one seed")
    mean = math.fsum(values) / n
    sd = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1)) if n > 1 else None
    return Spread(n, mean, sd)


def paired(first: Sequence[float], other: Sequence[float]) -> Paired:
    """Compare `other` with `first`, value by value of the same seed."""
    if len(first) != len(other):
        raise InputError(f"a paired test needs as many values on both sides, got {len(first)} and {len(other)}")
    d = spread([b - a for a, b in zip(first, other, strict=True)])
    if d.sd is None:
        return Paired(1, d.mean, None, None, None)
    error, rounding = d.sd / math.sqrt(d.n), ROUNDING * max(map(abs, (*first, *other)))
    if error <= rounding:
        return Paired(d.n, d.mean, None, None, 1.0 if abs(d.mean) <= rounding else 2.0 ** (1 - d.n))
    reach = float(stdtrit(d.n - 1, (1 + CONFIDENCE) / 2)) * error
    p = float(2 * stdtr(d.n - 1, -abs(d.mean) / error))
    return Paired(d.n, d.mean, d.mean - reach, d.mean + reach, p)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's step-down correction: the chance of any false finding among all tests stays below the level."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    out, most = [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        most = max(most, min(1.0, (len(p) - rank) * p[i]))
        out[i] = most
    return out


def judge(tests: Sequence[dict[str, Any]], better: Sequence[Better]) -> int:
    """Add `p_holm` and `verdict` to paired tests, corrected for all of them together; returns how many have a p."""
    made = [test for test in tests if test["p"] is not None]
    corrected = dict(zip(map(id, made), holm([test["p"] for test in made]), strict=True))
    for test, way in zip(tests, better, strict=True):
        test["p_holm"] = corrected.get(id(test))
        test["verdict"] = verdict(test["difference"], test["p_holm"], way)
    return len(made)


def verdict(difference: float, p: float | None, better: Better) -> Verdict:
    """By p and the sign of the difference. Among several tests, p is the corrected one."""
    if p is None or p >= 1 - CONFIDENCE:
        return "not distinguishable"
    return "better" if (difference < 0) == (better == "lower") else "worse"
