"""One update after another. Everything random in step k (data order, permutation, time, noise, dropout) is keyed by
(seed, k), so a run that is killed and resumed computes the same numbers as one that was not.

    learning rate   lr(k) = lr_end + (lr - lr_end) min(1, (k + 1)/warmup, (steps - k)/decay), times factor^epoch
    averaged weights   w <- w + (1 - min(decay, (1 + n)/(10 + n))) (raw - w) after update n
"""

from __future__ import annotations

import copy
import hashlib

import torch
from torch import Tensor, nn

from isostep.base.errors import InputError
from isostep.base.memory import keep_freed_memory
from isostep.network.gdss.reference import GdssNetwork
from isostep.network.grum.reference import GrumNetwork
from isostep.training.config import OptimizerConfig, TrainConfig
from isostep.training.data import Batch, GraphSource, TrainData
from isostep.training.loss import Draw, Losses, Objective, draw_noise
from isostep.training.network import build_network
from isostep.training.team import Team


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


class Trainer:
    """One run: network, averaged network, optimizer, data; `step` does one update."""

    def __init__(self, config: TrainConfig, data: TrainData, team: Team | None = None) -> None:
        team = team or Team()
        if config.run.batch % team.size:
            raise InputError(f"run.batch {config.run.batch} must be a multiple of the {team.size} processes")
        self.config, self.data, self.team = config, data, team
        torch.manual_seed(key_seed(config.seed, "weights"))
        self.network = build_network(config, data).to(team.device)
        self.ema = copy.deepcopy(self.network).eval().requires_grad_(False)
        self.optimizer = _optimizer(config.optimizer, self.network)
        self.objective = Objective(config)
        self.shared: nn.Module = self.network
        if team.size > 1:
            devices = [team.device] if team.device.type == "cuda" else None
            # GruM's last layer updates a graph state that nothing reads: its parameters get no gradient.
            self.shared = nn.parallel.DistributedDataParallel(
                self.network, device_ids=devices, find_unused_parameters=True
            )
        elif (fused := _fused(self.network)) is not None:
            keep_freed_memory()
            self.shared = fused
        if config.run.compile and self.shared is self.network:
            _compile(self.network)
        self.done = 0

    @property
    def learning_rate(self) -> float:
        """That of the last update."""
        return self.optimizer.param_groups[0]["lr"]

    def draw(self, source: GraphSource, chosen: Tensor, *key: object) -> tuple[Batch, Draw]:
        """Clean graphs and noise, for this process's share of the batch."""
        generator = keyed(self.config.seed, *key)
        batch = source.batch(chosen).permuted(generator)
        if self.data.signs:
            signs = torch.randint(0, 2, (len(chosen), 1, self.data.features), generator=generator) * 2 - 1
            batch = batch._replace(x=batch.x * signs)
        noise = draw_noise(batch, self.config.loss.eps, generator, self.config.loss.strata)
        rows = self.team.share(len(chosen))
        return batch.rows(rows).to(self.team.device), noise.rows(rows).to(self.team.device)

    def gradients(self) -> Losses:
        """Losses of the next step's batch, with gradients left in the parameters (averaged over the team)."""
        run = self.config.run
        chosen = order(self.config.seed, len(self.data.train), run.batch, self.done)
        batch, noise = self.draw(self.data.train, chosen, "step", self.done)
        torch.manual_seed(key_seed(self.config.seed, "dropout", self.done, self.team.rank))
        self.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        losses = self.objective(self.shared, batch, noise)
        self.objective.total(losses).backward()
        return Losses(*(value.detach() for value in losses))

    def step(self) -> Losses:
        losses = self.gradients()
        c, run = self.config.optimizer, self.config.run
        for group in _clip_groups(self.network):
            nn.utils.clip_grad_norm_(group, c.grad_clip)
        epoch = self.done * run.batch // len(self.data.train)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(c, self.done, run.steps, epoch)
        self.optimizer.step()
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
            chosen = torch.arange(first, first + size) % len(self.data.validation)
            batch, noise = self.draw(self.data.validation, chosen, "validation", first)
            parts.append(torch.stack(list(self.objective(self.ema, batch, noise))))
        mean = torch.stack(parts).mean(0)
        if self.team.size > 1:
            torch.distributed.all_reduce(mean)
            mean /= self.team.size
        return Losses(*mean)


def _fused(network: nn.Module) -> nn.Module | None:
    """The faster way through the network, where there is one: it needs Numba."""
    try:
        from isostep.network.grum.fused import FusedGrum
    except ImportError:
        return None
    return FusedGrum(network) if isinstance(network, GrumNetwork) and FusedGrum.fits(network) else None


def _compile(network: nn.Module) -> None:
    """Fuse the operations of each repeated layer: equal layers are compiled once."""
    parts = network.tf_layers if isinstance(network, GrumNetwork) else network.children()
    for part in parts:
        part.compile(dynamic=False)


def _clip_groups(network: nn.Module) -> list[list[nn.Parameter]]:
    """GDSS' two networks are clipped apart, as they are trained by losses that do not mix."""
    parts = list(network.children()) if isinstance(network, GdssNetwork) else [network]
    return [list(part.parameters()) for part in parts]


def _optimizer(c: OptimizerConfig, network: nn.Module) -> torch.optim.Optimizer:
    kind = torch.optim.AdamW if c.kind == "adamw" else torch.optim.Adam
    return kind(network.parameters(), lr=c.lr, weight_decay=c.weight_decay, amsgrad=c.amsgrad, fused=True)
