"""The loss: coefficient and marginal as the reference programs compute them, GDSS' by hand."""

from __future__ import annotations

import math

import pytest
import torch
from safetensors.torch import load_file

from isostep.state import expand
from isostep.training.data import Batch
from isostep.training.loss import Draw, Objective, draw_noise
from tests.conftest import FIXTURES
from tests.training.configs import config, values


def _objective(family: str, **process) -> Objective:
    table = values(family)["process"]
    return Objective(config(family, process={part: {**table[part], **process} for part in table}))


@pytest.mark.parametrize("name", ["mol", "graph"])
def test_coefficient_and_marginal_equal_the_reference(name):
    known = load_file(FIXTURES / "grum" / f"{name}_net.safetensors")
    objective, t = _objective("grum", weight="default", cap=None), known["t"].double()
    bridge = objective.processes["A"]
    torch.testing.assert_close(
        objective.coefficient("A", t).float(), known["bridge_loss_coeff"].flatten(), rtol=2e-4, atol=1e-4
    )
    c0, c1, std = bridge.linear_step(torch.zeros_like(t), t)
    start, end = known["adj"], known["bridge_dest"]
    torch.testing.assert_close(
        expand(c0, start) * start + expand(c1, end) * end, known["bridge_mean"], rtol=2e-4, atol=2e-5
    )
    torch.testing.assert_close(std.float(), known["bridge_std"].flatten(), rtol=2e-4, atol=2e-5)


def test_cap_bounds_the_coefficient_and_const_makes_it_one():
    t = torch.linspace(0, 0.998, 50, dtype=torch.float64)
    free = _objective("grum", weight="default", cap=None).coefficient("A", t)
    assert free.max() > 100
    torch.testing.assert_close(_objective("grum", weight="default", cap=20.0).coefficient("A", t), free.clamp(max=20))
    assert (_objective("grum", weight="const").coefficient("A", t) == 1).all()


def _example() -> tuple[Batch, Draw]:
    """One edge between two of three nodes; one padded."""
    adj = torch.tensor([[[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]])
    batch = Batch(torch.tensor([[[1.0], [0.0], [0.0]]]), adj, torch.tensor([[1.0, 1.0, 0.0]]))
    noise_adj = torch.tensor([[[0.0, -0.5, 0.0], [-0.5, 0.0, 0.0], [0.0, 0.0, 0.0]]])
    return batch, Draw(torch.tensor([0.75], dtype=torch.float64), torch.tensor([[[2.0], [-1.0], [0.0]]]), noise_adj)


def test_score_matching_by_hand():
    """VP at s = 1/4 with b0 = .1, b1 = 5: B = s b0 + s^2 (b1 - b0)/2; score = -net/std, so the error is z - net."""
    batch, noise = _example()
    integral = 0.25 * 0.1 + 0.25**2 * 4.9 / 2
    mean, std = math.exp(-integral / 2), math.sqrt(1 - math.exp(-integral))
    seen = []

    def network(x, adj, mask, t):
        seen.extend((x, adj))
        return torch.full_like(x, 0.5) * mask[..., None], torch.full_like(adj, 0.25) * (adj != 0)

    losses = _objective("gdss")(network, batch, noise)  # type: ignore[arg-type]
    torch.testing.assert_close(seen[0].flatten(), torch.tensor([mean + 2 * std, -std, 0.0]))
    assert float(seen[1][0, 0, 1]) == pytest.approx(mean - 0.5 * std, rel=1e-6)
    assert float(losses.x) == pytest.approx((1.5**2 + 1.5**2) / 2, rel=1e-6)
    assert float(losses.adj) == pytest.approx(2 * 0.75**2 / 2, rel=1e-6)


def test_score_matching_of_ve_by_hand():
    """VE: score = net, so the error is sigma net + z with sigma = .1 * 10^s."""
    batch, noise = _example()
    table = {"type": "VE", "sigma_min": 0.1, "sigma_max": 1.0}
    objective = Objective(config("gdss", process={"X": table, "A": table}))
    losses = objective(lambda x, adj, mask, t: (torch.ones_like(x), torch.zeros_like(adj)), batch, noise)  # type: ignore[arg-type]
    sigma = 0.1 * 10**0.25
    assert float(losses.x) == pytest.approx(((sigma + 2) ** 2 + (sigma - 1) ** 2 + sigma**2) / 2, rel=1e-6)
    assert float(losses.adj) == pytest.approx(2 * 0.5**2 / 2, rel=1e-6)


def test_bridge_matching_by_hand():
    batch, noise = _example()
    objective = _objective("grum", weight="default")
    losses = objective(lambda x, adj, mask, t: (torch.zeros_like(x), torch.zeros_like(adj)), batch, noise)  # type: ignore[arg-type]
    c = float(objective.coefficient("A", noise.t))
    assert float(losses.x) == pytest.approx(c**2 / 2, rel=1e-6)
    assert float(losses.adj) == pytest.approx(2 * c**2 / 2, rel=1e-6)
    assert float(objective.total(losses)) == pytest.approx(c**2 / 2 + 5 * c**2, rel=1e-6)


def test_the_clean_graph_has_no_bridge_loss_and_the_true_noise_no_score_loss():
    batch, noise = _example()
    assert all(v == 0 for v in _objective("grum")(lambda *_: (batch.x, batch.adj), batch, noise))  # type: ignore[arg-type]
    assert all(v < 1e-12 for v in _objective("gdss")(lambda *_: (noise.x, noise.adj), batch, noise))  # type: ignore[arg-type]


def test_noise_is_masked_symmetric_standard_normal():
    mask = torch.ones(4000, 4)
    mask[:, 3] = 0
    clean = Batch(torch.zeros(4000, 4, 2), torch.zeros(4000, 4, 4), mask)
    draw = draw_noise(clean, 0.002, torch.Generator().manual_seed(1))
    assert torch.equal(draw.adj, draw.adj.mT)
    assert not draw.adj.diagonal(dim1=1, dim2=2).any()
    assert not draw.adj[:, 3].any()
    assert not draw.x[:, 3].any()
    assert float(draw.t.max()) < 0.998
    assert abs(float(draw.t.mean()) - 0.499) < 0.02
    pairs = draw.adj[:, [0, 0, 1], [1, 2, 2]]
    assert abs(float(pairs.std()) - 1) < 0.03
    assert abs(float(pairs.mean())) < 0.03


def test_strata_have_one_time_each_and_leave_the_noise_alone():
    batch = Batch(torch.zeros(50, 3, 2), torch.zeros(50, 3, 3), torch.ones(50, 3))
    plain, strata = (draw_noise(batch, 0.1, torch.Generator().manual_seed(1), strata=s) for s in (False, True))
    assert (strata.t / 0.9 * 50).floor().tolist() == list(range(50))
    assert plain.t.max() < 0.9
    assert torch.equal(plain.x, strata.x)
    assert torch.equal(plain.adj, strata.adj)
