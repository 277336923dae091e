"""How fast the transition distribution moves, in the Fisher-Rao metric.

The kernel N(x + f dt, g^2 dt I) has Fisher information dt/g^2 I in its drift and 2D/g^2 in its noise g, and no cross
term, so  ds^2 = dt ||df||^2 / g^2 + 2 D (dg)^2 / g^2.  Per unit time:

    V   = ||f_k - f_(k-1)||^2 / g(t_k)^2              drift part, the Drift Variation Score; ds2 = V dt
    V_g = 2 D (g_k - g_(k-1))^2 / (g(t_k)^2 dt)       noise part; V_g dt is its share of ds^2

||.||^2 sums all stored entries, both triangles of A; D counts independent entries.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from isostep.state import GraphState


def squared_norm(value: Tensor) -> Tensor:
    """(B,) sum of squares over all entries of each graph."""
    return value.flatten(1).square().sum(1)


def drift_variation(new: Mapping[str, Tensor], old: Mapping[str, Tensor], diffusion: Mapping[str, Tensor]) -> Tensor:
    """V, (B, C), one column per component in the order of `new`; infinite where g = 0 and the drift moved."""
    moved = torch.stack([squared_norm(new[n] - old[n]).to(diffusion[n].dtype) for n in new], 1)
    return torch.where(moved == 0, moved, moved / torch.stack([diffusion[n] for n in new], 1).square())


def noise_variation(new: Mapping[str, Tensor], old: Mapping[str, Tensor], state: GraphState, dt: Tensor) -> Tensor:
    """V_g, (B, C)."""
    columns = [2 * state.free_entries(n) * (new[n] - old[n]).square() / (new[n].square() * dt) for n in new]
    return torch.stack(columns, 1)
