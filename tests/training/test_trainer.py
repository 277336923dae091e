"""Updates: memorising one graph, the learning rate, averaged weights, the order of the data."""

from __future__ import annotations

import pytest
import torch

from isostep.control import uniform
from isostep.item.decoding import decode_graphs
from isostep.item.graph import Graph
from isostep.loop import integrate
from isostep.model.model import Model
from isostep.noise import PhiloxNoise, standard_normal
from isostep.solver import Exponential
from isostep.training.export import card
from isostep.training.trainer import Trainer, learning_rate, order, shuffled
from tests.training.configs import COMPLETE, LOLLIPOP, PATH, STAR, config, data, values


def _isomorphic(a: Graph, b: Graph) -> bool:
    import networkx

    return networkx.is_isomorphic(a.to_networkx(), b.to_networkx())


def _sample(trainer: Trainer, count: int, steps: int) -> list[Graph]:
    """Exact linear steps with the averaged weights; all graphs have as many nodes as slots."""
    nodes, info = trainer.data.max_nodes, card(trainer.config, trainer.data, "a test")
    sde = Model(info, trainer.ema).sde
    start = standard_normal(info.blank(torch.ones(count, nodes)), seed=7)
    mean = integrate(sde, start, uniform(steps), Exponential(), PhiloxNoise(7)).mean
    return decode_graphs(mean["A"], mean.mask)


@pytest.mark.parametrize(
    ("family", "kind", "steps", "lr", "graph"),
    [
        ("grum", "adamw", 200, 3e-3, PATH),
        ("grum", "muon", 200, 3e-3, PATH),
        ("gdss", "adamw", 300, 1e-2, COMPLETE),
        ("gdss", "muon", 300, 1e-2, COMPLETE),
    ],
)
def test_memorises_one_graph(family, kind, steps, lr, graph):
    """By chance a path of 3 nodes comes 3 times out of 8, a complete graph of 4 nodes once out of 64."""
    run = {**values(family)["run"], "steps": steps, "batch": 32}
    optimizer = {"kind": kind, "lr": lr, "warmup_steps": 20, "decay_steps": steps // 2, "ema": 0.98}
    trainer = Trainer(config(family, run=run, optimizer=optimizer), data(family, [graph], graph.n))
    for _ in range(steps):
        trainer.step()
    found = _sample(trainer, 40, 60)
    assert sum(_isomorphic(one, graph) for one in found) >= 34


def test_learning_rate_rises_stays_and_falls_to_its_end():
    c = config("grum", optimizer={"lr": 1.0, "lr_end": 0.1, "warmup_steps": 10, "decay_steps": 20}).optimizer
    rates = [learning_rate(c, k, 100, 0) for k in range(100)]
    assert rates[0] == pytest.approx(0.1 + 0.9 / 10)
    assert rates[9:81] == [1.0] * 72
    assert rates[90] == pytest.approx(0.55)
    assert rates[99] == pytest.approx(0.1 + 0.9 / 20)
    exponential = config("gdss", optimizer={"lr": 1.0, "lr_factor": 0.5}).optimizer
    assert [learning_rate(exponential, 5, 100, epoch) for epoch in range(3)] == [1.0, 0.5, 0.25]


def test_muon_moves_matrices_of_the_layers_by_orthogonal_steps_and_all_else_by_adamw():
    """Singular values of a matrix's step: .2 lr sqrt(width), so that its entries are as large as AdamW's; .7 to 1.2 of
    that is what Newton and Schulz leave. Those of its gradient differ by more than a hundred."""
    lr = 1e-3
    trainer = Trainer(config("grum", optimizer={"kind": "muon", "lr": lr}), data("grum", [STAR, LOLLIPOP], 7))
    before = {name: value.detach().clone() for name, value in trainer.network.named_parameters()}
    trainer.step()
    moved = {name: before[name] - value.detach() for name, value in trainer.network.named_parameters()}
    name = "tf_layers.0.self_attn.q.weight"
    gradient = torch.linalg.svdvals(trainer.network.get_parameter(name).grad)[:8]
    steps = torch.linalg.svdvals(moved[name])[:8] / (0.2 * lr * 32**0.5)
    assert float(gradient[0] / gradient[-1]) > 100
    assert 0.6 < float(steps.min()) < float(steps.max()) < 1.3
    for name in ("mlp_in_X.0.weight", "tf_layers.0.self_attn.q.bias"):
        changed = moved[name][trainer.network.get_parameter(name).grad != 0]
        torch.testing.assert_close(changed.abs(), torch.full_like(changed, lr), rtol=1e-2, atol=0)
    owned = [p for one in trainer.optimizers for group in one.param_groups for p in group["params"]]
    assert len(owned) == len(before) == len({id(p) for p in owned})


def test_averaged_weights_follow_the_warm_up_rule():
    trainer = Trainer(config("grum"), data("grum", [STAR], 4))
    expected = [p.clone() for p in trainer.ema.parameters()]
    for n in range(1, 4):
        trainer.step()
        decay = (1 + n) / (10 + n)
        expected = [
            decay * e + (1 - decay) * p.detach() for e, p in zip(expected, trainer.network.parameters(), strict=True)
        ]
    for e, p in zip(expected, trainer.ema.parameters(), strict=True):
        torch.testing.assert_close(p, e)


def test_an_epoch_visits_every_graph_once_and_epochs_differ():
    total, batch = 10, 4
    seen = torch.cat([order(3, total, batch, step) for step in range(5)])
    assert sorted(seen[:10].tolist()) == sorted(seen[10:].tolist()) == list(range(10))
    assert seen[:10].tolist() != seen[10:].tolist()
    assert order(3, 2, 7, 0).bincount().tolist() in ([3, 4], [4, 3])


def test_shuffled_graphs_are_the_same_graphs():
    clean = data("grum", [STAR, LOLLIPOP], 8).train.take(torch.tensor([0, 1]))
    other = shuffled(clean, lambda like: standard_normal(like).components)
    assert not torch.equal(clean["A"], other["A"])
    assert torch.equal(clean.mask, other.mask)
    for a, b in zip(decode_graphs(clean["A"], clean.mask), decode_graphs(other["A"], other.mask), strict=True):
        assert _isomorphic(a, b)
    laplacian = torch.diag_embed(other["A"].sum(-1)) - other["A"]
    rayleigh = (other["X"].mT @ laplacian @ other["X"]).diagonal(dim1=1, dim2=2) / 100
    torch.testing.assert_close(rayleigh[0], torch.tensor([1.0, 1.0]), atol=1e-4, rtol=0)


def test_node_orders_and_signs_are_drawn_evenly():
    trainer = Trainer(config("grum"), data("grum", [STAR], 5))
    look = trainer.look(trainer.data.train, torch.zeros(4000, dtype=torch.int64), 0)
    centre = look.clean["A"].sum(2).argmax(1)
    assert (centre.bincount(minlength=5)[:4].float() / 1000 - 1).abs().max() < 0.15
    assert not (centre == 4).any()
    x = look.clean["X"][..., 0]
    largest = x.gather(1, x.abs().argmax(1, keepdim=True))
    assert abs(float((largest > 0).float().mean()) - 0.5) < 0.05


def test_gradients_are_those_of_the_reference_network():
    """Whichever way the trainer goes through the network."""
    trainer = Trainer(config("grum"), data("grum", [STAR, LOLLIPOP], 7))
    trainer.gradients()
    found = [p.grad for p in trainer.network.parameters()]
    look = trainer.look(trainer.data.train, order(trainer.config.seed, 2, trainer.config.run.batch, 0), 0)
    trainer.network.zero_grad()
    trainer.objective.total(trainer.objective(trainer.network, look)).backward()
    for p, gradient in zip(trainer.network.parameters(), found, strict=True):
        if p.grad is not None and p.grad.norm():
            assert gradient is not None
            assert float((gradient - p.grad).norm() / p.grad.norm()) < 1e-5
