"""How fast the transition distribution moves, in the Fisher-Rao metric.

The kernel N(x + f dt, g^2 dt I) has Fisher information dt/g^2 I in its drift and 2D/g^2 in its noise g, and no cross
term, so  ds^2 = dt ||df||^2 / g^2 + 2 D (dg)^2 / g^2.  Per unit time:

    V   = ||f_k - f_(k-1)||^2 / g(t_k)^2              drift part, the Drift Variation Score; ds2 = V dt
    V_g = 2 D (g_k - g_(k-1))^2 / (g(t_k)^2 dt)       noise part; V_g dt is its share of ds^2

||.||^2 sums all stored entries, both triangles of A; D counts independent entries. A model without noise (an ODE, flow
matching) has no transition law to measure: where g = 0, V is ||df||^2, as if g were 1, and V_g is 0.

A decision is an entry that ends on a whole number (an edge, a bond order, an element or not). Predicted between two
levels, it is the upper one with the probability of its distance from the lower one, and that Bernoulli law is at the
angle 2 arcsin(sqrt(p)) in the Fisher-Rao metric: pi from level to level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from isostep.state import GraphState


def squared_norm(value: Tensor) -> Tensor:
    """(B,) sum of squares over all entries of each graph."""
    return value.flatten(1).square().sum(1)


def drift_variation(new: Mapping[str, Tensor], old: Mapping[str, Tensor], diffusion: Mapping[str, Tensor]) -> Tensor:
    """V, (B, C), one column per component in the order of `new`."""
    moved = torch.stack([squared_norm(new[n] - old[n]).to(diffusion[n].dtype) for n in new], 1)
    level = torch.stack([diffusion[n] for n in new], 1).square()
    return moved / torch.where(level > 0, level, 1.0)


def noise_variation(new: Mapping[str, Tensor], old: Mapping[str, Tensor], state: GraphState, dt: Tensor) -> Tensor:
    """V_g, (B, C)."""
    columns: list[Tensor] = []
    for n in new:
        change = 2 * state.free_entries(n) * (new[n] - old[n]).square() / (new[n].square() * dt)
        columns.append(torch.where(new[n] > 0, change, 0.0))
    return torch.stack(columns, 1)


def decision_angle(value: Tensor) -> Tensor:
    """The Fisher-Rao coordinate of predicted entries whose levels are 0, 1, 2, ...; below 0 it is that of 0."""
    level = value.clamp_min(0.0).floor()
    return math.pi * level + 2 * (value.clamp_min(0.0) - level).sqrt().asin()


def undecided(value: Tensor, margin: float = 0.2) -> Tensor:
    """Which predicted entries are further than `margin` from the nearest level."""
    return (value.clamp_min(0.0) - value.clamp_min(0.0).round()).abs() > margin
