"""The loss: coefficient and marginal as the reference programs compute them, GDSS' by hand."""

from __future__ import annotations

import math

import pytest
import torch
from safetensors.torch import load_file

from isostep.state import GraphState, expand
from isostep.training.loss import Look, Objective
from isostep.training.trainer import Trainer
from tests.conftest import FIXTURES
from tests.training.configs import PATH, STAR, config, data, values


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


def _example() -> Look:
    """One edge between two of three nodes; one padded."""
    adj = torch.tensor([[[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]])
    clean = GraphState.of(torch.tensor([[1, 1, 0]]), X=torch.tensor([[[1.0], [0.0], [0.0]]]), A=adj)
    noise_adj = torch.tensor([[[0.0, -0.5, 0.0], [-0.5, 0.0, 0.0], [0.0, 0.0, 0.0]]])
    noise = {"X": torch.tensor([[[2.0], [-1.0], [0.0]]]), "A": noise_adj}
    return Look(clean, noise, torch.tensor([0.75], dtype=torch.float64))


def test_score_matching_by_hand():
    """VP at s = 1/4 with b0 = .1, b1 = 5: B = s b0 + s^2 (b1 - b0)/2; score = -net/std, so the error is z - net."""
    look = _example()
    integral = 0.25 * 0.1 + 0.25**2 * 4.9 / 2
    mean, std = math.exp(-integral / 2), math.sqrt(1 - math.exp(-integral))
    seen = []

    def network(x, adj, mask, t):
        seen.extend((x, adj))
        return torch.full_like(x, 0.5) * mask[..., None], torch.full_like(adj, 0.25) * (adj != 0)

    losses = _objective("gdss")(network, look)  # type: ignore[arg-type]
    torch.testing.assert_close(seen[0].flatten(), torch.tensor([mean + 2 * std, -std, 0.0]))
    assert float(seen[1][0, 0, 1]) == pytest.approx(mean - 0.5 * std, rel=1e-6)
    assert float(losses["X"]) == pytest.approx((1.5**2 + 1.5**2) / 2, rel=1e-6)
    assert float(losses["A"]) == pytest.approx(2 * 0.75**2 / 2, rel=1e-6)


def test_score_matching_of_ve_by_hand():
    """VE: score = net, so the error is sigma net + z with sigma = .1 * 10^s."""
    look = _example()
    table = {"type": "VE", "sigma_min": 0.1, "sigma_max": 1.0}
    objective = Objective(config("gdss", process={"X": table, "A": table}))
    losses = objective(lambda x, adj, mask, t: (torch.ones_like(x), torch.zeros_like(adj)), look)  # type: ignore[arg-type]
    sigma = 0.1 * 10**0.25
    assert float(losses["X"]) == pytest.approx(((sigma + 2) ** 2 + (sigma - 1) ** 2 + sigma**2) / 2, rel=1e-6)
    assert float(losses["A"]) == pytest.approx(2 * 0.5**2 / 2, rel=1e-6)


def test_bridge_matching_by_hand():
    look = _example()
    objective = _objective("grum", weight="default")
    losses = objective(lambda x, adj, mask, t: (torch.zeros_like(x), torch.zeros_like(adj)), look)  # type: ignore[arg-type]
    c = float(objective.coefficient("A", look.t))
    assert float(losses["X"]) == pytest.approx(c**2 / 2, rel=1e-6)
    assert float(losses["A"]) == pytest.approx(2 * c**2 / 2, rel=1e-6)
    assert float(objective.total(losses)) == pytest.approx(c**2 / 2 + 5 * c**2, rel=1e-6)


def test_the_clean_graph_has_no_bridge_loss_and_the_true_noise_no_score_loss():
    look = _example()
    clean, noise = tuple(look.clean.components.values()), tuple(look.noise.values())
    assert all(v == 0 for v in _objective("grum")(lambda *_: clean, look).values())  # type: ignore[arg-type]
    assert all(v < 1e-12 for v in _objective("gdss")(lambda *_: noise, look).values())  # type: ignore[arg-type]


def test_a_component_has_the_factor_that_its_process_gives():
    table = values("grum")["process"]
    objective = Objective(config("grum", process={"X": {**table["X"], "factor": 3.0}, "A": table["A"]}))
    assert float(objective.total({"X": torch.tensor(1.0), "A": torch.tensor(10.0)})) == 3 + 5 * 10


def test_a_look_has_masked_symmetric_standard_normal_noise_and_uniform_times():
    trainer = Trainer(config("grum"), data("grum", [PATH], 4))
    look = trainer.look(trainer.data.train, torch.zeros(4000, dtype=torch.int64), 0)
    a = look.noise["A"]
    assert torch.equal(a, a.mT)
    assert not a.diagonal(dim1=1, dim2=2).any()
    assert not a[:, 3].any()
    assert not look.noise["X"][:, 3].any()
    assert float(look.t.max()) < 0.998
    assert abs(float(look.t.mean()) - 0.499) < 0.02
    pairs = a[:, [0, 0, 1], [1, 2, 2]]
    assert abs(float(pairs.std()) - 1) < 0.03
    assert abs(float(pairs.mean())) < 0.03


def test_an_example_does_not_depend_on_its_batch():
    trainer = Trainer(config("grum"), data("grum", [PATH, STAR], 4))
    whole = trainer.look(trainer.data.train, torch.tensor([0, 1, 1, 0]), 8)
    part = trainer.look(trainer.data.train, torch.tensor([1, 0]), 10)
    assert torch.equal(part.t, whole.t[2:])
    for name in ("X", "A"):
        assert torch.equal(part.clean[name], whole.clean[name][2:])
        assert torch.equal(part.noise[name], whole.noise[name][2:])
    other = trainer.look(trainer.data.train, torch.tensor([1, 0]), 12)
    assert not torch.equal(part.noise["A"], other.noise["A"])


def test_strata_give_one_time_in_each_part():
    trainer = Trainer(config("grum", loss={"strata": True}), data("grum", [PATH], 4))
    t = trainer.look(trainer.data.train, torch.zeros(16, dtype=torch.int64), 32).t / (1 - 2e-3)
    assert (t * 16).floor().tolist() == list(range(16))
    assert len(set((t * 16).frac().tolist())) == 16
