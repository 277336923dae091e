"""A graph transformer over atoms, bonds and positions, for mixtures of bridges on (X, A, P).

Node states h (B, N, dx), pair states e (B, N, N, de) and points p (B, N, 3) pass through layers of

    h_i <- h_i + out( sum_j softmax_j( q_i k_j / sqrt(d) + bias(e_ij) ) v_j ),    h_i <- h_i + MLP(h_i)
    e_ij <- e_ij + MLP( e_ij, a(h_i) + a(h_j), m(h_i) * m(h_j), rbf(|p_i - p_j|) )
    p_i <- p_i + sum_j w(e_ij) (p_i - p_j) / (1 + |p_i - p_j|)

with the time in every layer's norms. Only distances enter h and e, and p moves along differences: turned, mirrored or
shifted points give the same X and A, and turned, mirrored points. w is symmetric, so the mean of p does not move.
Padding is masked everywhere: a graph's result does not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from isostep.base.errors import InputError
from isostep.network.grum.reference import MoleculeHead
from isostep.network.settings import MAX_LAYERS, positive, whole

WAVES = 16  # radial functions of a distance
REACH = 8.0  # ångström; beyond, distances look alike
FREQUENCIES = 8  # of the time


class Grum3dNetwork(nn.Module):
    """`params`: atoms, layers, dx, de, heads, scale (bond order = scale * A)."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        super().__init__()
        self.atoms, dx, de = whole(params, "atoms"), whole(params, "dx"), whole(params, "de")
        heads, time = whole(params, "heads"), 2 * FREQUENCIES + 1
        if dx % heads:
            raise InputError(f"node width dx = {dx} is not a multiple of heads = {heads}")
        self.node_in = _mlp(self.atoms + time, dx, dx)
        self.pair_in = _mlp(2 + 2 * self.atoms + WAVES, de, de)
        self.layers = nn.ModuleList(Layer(dx, de, heads, time) for _ in range(whole(params, "layers", MAX_LAYERS)))
        self.node_out = nn.Sequential(nn.LayerNorm(dx), _mlp(dx, dx, self.atoms))
        self.pair_out = nn.Sequential(nn.LayerNorm(de), _mlp(de, de, 2))
        self.head = MoleculeHead(positive(params, "scale"))

    def forward(self, x: Tensor, a: Tensor, p: Tensor, mask: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x (B, N, F), a (B, N, N), p (B, N, 3), mask (B, N), t (B,) -> predicted clean x, a, p."""
        nodes = mask.to(x.dtype).unsqueeze(-1)  # (B, N, 1)
        pairs = (nodes * nodes.mT).unsqueeze(-1) * (
            1 - torch.eye(x.shape[1], dtype=x.dtype, device=x.device)[..., None]
        )
        time = waves_of_time(t.to(x.dtype))
        h = self.node_in(torch.cat((x, time[:, None].expand(-1, x.shape[1], -1)), -1)) * nodes
        ends = torch.cat((x[:, :, None] + x[:, None], x[:, :, None] * x[:, None]), -1)
        links = torch.stack((a, two_step(a)), -1)
        e = self.pair_in(torch.cat((links, ends, radial(distances(p))), -1)) * pairs
        for layer in self.layers:
            h, e, p = layer(h, e, p, nodes, pairs, time)
        clean_x, clean_a = self.head(self.node_out(h), self.pair_out(e))
        clean_a = (clean_a + clean_a.mT) / 2  # equal but for rounding
        return clean_x * nodes, clean_a * pairs.squeeze(-1), p * nodes


class Layer(nn.Module):
    def __init__(self, dx: int, de: int, heads: int, time: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, 1 / math.sqrt(dx // heads)
        self.norm_h, self.norm_ff, self.norm_e = Timed(dx, time), Timed(dx, time), Timed(de, time)
        self.qkv, self.out = nn.Linear(dx, 3 * dx, bias=False), nn.Linear(dx, dx)
        self.bias = nn.Linear(de, heads, bias=False)
        self.feed = _mlp(dx, 2 * dx, dx)
        self.ends = nn.Linear(dx, 2 * de)
        self.own, self.waves, self.back = nn.Linear(de, 2 * de), nn.Linear(WAVES, 2 * de), nn.Linear(2 * de, de)
        self.product = nn.Linear(de, 2 * de, bias=False)
        last = nn.Linear(de, 1, bias=False)
        nn.init.normal_(last.weight, std=1e-3)  # points stay where they are at first
        self.push = nn.Sequential(nn.Linear(de, de), nn.SiLU(), last)

    def forward(
        self, h: Tensor, e: Tensor, p: Tensor, nodes: Tensor, pairs: Tensor, time: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        seen = self.norm_e(e, time)
        h = (h + self._attend(self.norm_h(h, time), seen, nodes)) * nodes
        h = (h + self.feed(self.norm_ff(h, time))) * nodes
        gap, far = p[:, :, None] - p[:, None], distances(p)
        add, times = self.ends(h).chunk(2, -1)
        inner = self.own(seen) + self.waves(radial(far))
        inner = inner + self.product(times[:, :, None] * times[:, None] + add[:, :, None] + add[:, None])
        e = (e + self.back(nn.functional.silu(inner))) * pairs
        p = p + (gap / (1 + far) * self.push(e) * pairs).sum(2)
        return h, e, p

    def _attend(self, h: Tensor, e: Tensor, nodes: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(h).chunk(3, -1))
        bias = self.bias(e).permute(0, 3, 1, 2)
        weight = (q @ k.mT * self.scale + bias).masked_fill(nodes.mT.unsqueeze(1) == 0, -torch.inf).softmax(-1)
        return self.out((weight @ v).transpose(1, 2).flatten(2))


class Timed(nn.Module):
    """LayerNorm whose gain and shift depend on the time."""

    def __init__(self, width: int, time: int) -> None:
        super().__init__()
        self.norm, self.film = nn.LayerNorm(width, elementwise_affine=False), nn.Linear(time, 2 * width)

    def forward(self, rows: Tensor, time: Tensor) -> Tensor:
        gain, shift = self.film(time).view(-1, *(1,) * (rows.ndim - 2), 2 * rows.shape[-1]).chunk(2, -1)
        return torch.addcmul(shift, self.norm(rows), 1 + gain)


def two_step(a: Tensor) -> Tensor:
    """A d A with d = 1 / max(sum |A|, 1): weighted paths of two bonds. (B, N, N)."""
    return a @ (a / a.abs().sum(-1, keepdim=True).clamp(min=1))


def distances(p: Tensor) -> Tensor:
    """(B, N, N, 1)."""
    return ((p[:, :, None] - p[:, None]).square().sum(-1, keepdim=True) + 1e-8).sqrt()


def radial(far: Tensor) -> Tensor:
    """(B, N, N, WAVES): bumps along the distance, the last one staying high beyond REACH."""
    centres = torch.linspace(0, REACH, WAVES, dtype=far.dtype, device=far.device)
    return torch.exp(-((far.clamp(max=REACH) - centres) * (WAVES / REACH)).square() / 2)


def waves_of_time(t: Tensor) -> Tensor:
    """(B, 2 FREQUENCIES + 1)."""
    angle = t[:, None] * (math.pi * 2.0 ** (torch.arange(FREQUENCIES, device=t.device) - 1)).to(t.dtype)
    return torch.cat((t[:, None], angle.sin(), angle.cos()), -1)


def _mlp(into: int, hidden: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(into, hidden), nn.SiLU(), nn.Linear(hidden, out))
