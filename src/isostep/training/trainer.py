"""One update after another. Examples are numbered through the run: row r of step k is example k * batch + r.
Node order, time and noise of an example come from `isostep.noise` by (seed, number); the order of the data and dropout
are keyed by epoch and step. So a run that is killed and resumed computes the same numbers as one that was not, and
several processes draw what one would.

    learning rate   lr(k) = lr_end + (lr - lr_end) min(1, (k + 1)/warmup, (steps - k)/decay), times factor^epoch
    averaged weights   w <- w + (1 - min(decay, (1 + n)/(10 + n))) (raw - w) after update n
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from isostep.base.errors import InputError
from isostep.base.memory import keep_freed_memory
from isostep.dataset.examples import Examples, Normal, TrainingData
from isostep.model.lookup import load_model
from isostep.noise import LOOK, VARY, Draw, PhiloxNoise, uniform
from isostep.state import GraphState
from isostep.training.config import OptimizerConfig, TrainConfig
from isostep.training.loss import Look, Losses, Objective
from isostep.training.muon import Muon
from isostep.training.ranks import Ranks

VALIDATION = 2**39  # number of the first validation example


def keyed(seed: int, *key: object) -> torch.Generator:
    """A generator that depends on the seed and the key alone."""
    return torch.Generator().manual_seed(key_seed(seed, *key))


def key_seed(seed: int, *key: object) -> int:
    """A seed of 56 bits from a seed and a key."""
    return int.from_bytes(hashlib.blake2b(repr((seed, *key)).encode(), digest_size=7).digest(), "big")


def order(seed: int, total: int, batch: int, step: int) -> Tensor:
    """Indices of step's batch: epochs are shuffles of all graphs, batches run across their ends."""
    first, last = step * batch, (step + 1) * batch
    epochs = range(first // total, (last - 1) // total + 1)
    shuffled = torch.cat([torch.randperm(total, generator=keyed(seed, "epoch", epoch)) for epoch in epochs])
    return shuffled[first - epochs[0] * total :][:batch]


def learning_rate(c: OptimizerConfig, step: int, steps: int, epoch: int) -> float:
    """Warm-up, level, decay (see above), for the update after `step` updates."""
    rise = (step + 1) / c.warmup_steps if c.warmup_steps else 1.0
    fall = (steps - step) / c.decay_steps if c.decay_steps else 1.0
    return (c.lr_end + (c.lr - c.lr_end) * min(1.0, rise, fall)) * c.lr_factor**epoch


def shuffled(state: GraphState, normal: Normal) -> GraphState:
    """Real nodes of each graph in random order; padding stays last."""
    like = GraphState.of(state.mask, {"order": "node"}, order=torch.zeros(*state.mask.shape, 1))
    return state.reorder(normal(like)["order"][..., 0].masked_fill(~state.mask, torch.inf).argsort(1))


class Trainer:
    """One run: network, averaged network, optimizers, data; `step` does one update."""

    def __init__(self, config: TrainConfig, data: TrainingData, ranks: Ranks | None = None) -> None:
        ranks = ranks or Ranks()
        if config.run.batch % ranks.size:
            raise InputError(f"run.batch {config.run.batch} must be a multiple of the {ranks.size} processes")
        self.config, self.data, self.ranks = config, data, ranks
        torch.manual_seed(key_seed(config.seed, "weights"))
        params = config.training.params(config.network, config.data, data)
        self.network = config.record.network(params).to(ranks.device)
        self.ema = copy.deepcopy(self.network).eval().requires_grad_(False)
        layers = config.training.repeated(self.network)
        self.optimizers = _optimizers(config.optimizer, self.network, layers)
        self.objective = Objective(config)
        self.quick: nn.Module = self.network
        half = config.run.precision == "bfloat16"
        if (fused := config.training.fused(self.network, half)) is not None:
            keep_freed_memory()
            self.quick = fused
        elif half:
            raise InputError(
                "run.precision bfloat16 is for GruM without dropout on a CPU with isostep[fast]; leave it out"
            )
        if config.run.compile and self.quick is self.network:
            for part in config.training.repeated(self.network):
                part.compile(dynamic=False)  # equal layers are compiled once
        self.done = 0

    def begin(self) -> None:
        """Take the weights of the model that the configuration names, if it names one."""
        if (name := self.config.begin) is None:
            return
        weights = load_model(name).network.state_dict()
        try:
            self.network.load_state_dict(weights)
            self.ema.load_state_dict(weights)
        except RuntimeError as error:
            raise InputError(f"begin: the weights of {name} are of another network than the configuration's") from error

    @property
    def learning_rate(self) -> float:
        """That of the last update."""
        return self.optimizers[0].param_groups[0]["lr"]

    def look(self, examples: Examples, chosen: Tensor, first: int) -> Look:
        """This process's share of a batch: the clean graphs `chosen`, whose numbers go up from `first`."""
        share = self.ranks.share(len(chosen))
        row = torch.arange(len(chosen))[share]
        index, zero = first + row, torch.zeros_like(row)
        noise, draw = PhiloxNoise(self.config.seed), Draw(index, zero, zero, zero)
        clean = shuffled(examples.take(chosen[share]), lambda like: noise.normal(like, draw, VARY))
        if self.data.vary is not None:
            clean = self.data.vary(clean, lambda like: noise.normal(like, draw, VARY))
        t = uniform(self.config.seed, index, LOOK)
        if self.config.loss.strata:
            t = (row + t) / len(chosen)
        return Look(clean, noise.normal(clean, draw, LOOK), t * (1 - self.config.loss.eps)).to(self.ranks.device)

    def gradients(self) -> Losses:
        """Losses of the next step's batch, with gradients left in the parameters (averaged over the ranks)."""
        run = self.config.run
        chosen = order(self.config.seed, self.data.train.count, run.batch, self.done)
        look = self.look(self.data.train, chosen, self.done * run.batch)
        torch.manual_seed(key_seed(self.config.seed, "dropout", self.done, self.ranks.rank))
        self.network.train()
        self.network.zero_grad(set_to_none=True)
        losses = self.objective(self.quick, look)
        self.objective.total(losses).backward()
        # GruM's last layer updates a graph state that nothing reads: its parameters get no gradient.
        self.ranks.average([p.grad for p in self.network.parameters() if p.grad is not None])
        return {name: value.detach() for name, value in losses.items()}

    def step(self) -> Losses:
        losses = self.gradients()
        c, run = self.config.optimizer, self.config.run
        for part in self.config.training.apart(self.network):
            nn.utils.clip_grad_norm_(part.parameters(), c.grad_clip)
        epoch = self.done * run.batch // self.data.train.count
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(c, self.done, run.steps, epoch)
            optimizer.step()
        self.done += 1
        weight = 1 - min(c.ema, (1 + self.done) / (10 + self.done))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.ema.parameters()), list(self.network.parameters()), weight)
        return losses

    @torch.no_grad()
    def validate(self) -> Losses:
        """Losses of the averaged weights on fixed graphs, times and noise; few graphs are taken several times."""
        total, size = self.config.run.validation_graphs, self.config.run.batch
        parts = []
        for first in range(0, max(total - size, 0) + 1, size):
            chosen = torch.arange(first, first + size) % self.data.validation.count
            look = self.look(self.data.validation, chosen, VALIDATION + first)
            parts.append(torch.stack(list(self.objective(self.ema, look).values())))
        mean = torch.stack(parts).mean(0)
        self.ranks.average([mean])
        return dict(zip(self.objective.processes, mean, strict=True))


def _optimizers(c: OptimizerConfig, network: nn.Module, layers: Iterable[nn.Module]) -> list[torch.optim.Optimizer]:
    """Each parameter is one optimizer's. Muon takes the matrices of `layers`; its steps are scaled to AdamW's."""
    kind = torch.optim.Adam if c.kind == "adam" else torch.optim.AdamW
    matrices = [p for layer in layers for p in layer.parameters() if p.ndim == 2] if c.kind == "muon" else []
    taken = {id(p) for p in matrices}
    rest = [p for p in network.parameters() if id(p) not in taken]
    found: list[torch.optim.Optimizer] = []
    if matrices:
        found.append(Muon(matrices, c.lr, c.weight_decay))
    if rest:
        found.append(kind(rest, lr=c.lr, weight_decay=c.weight_decay, amsgrad=c.amsgrad, fused=True))
    return found
