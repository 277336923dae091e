"""Something to sample from: a network, one process per component, a decoder and a card."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from isostep.graph import Graph
from isostep.model.info import ModelInfo
from isostep.molecule import Decoded, decode, decode_graphs
from isostep.noise import PRIOR, SIZES, Draw, PhiloxNoise, uniform
from isostep.process import ProcessSde
from isostep.state import GraphState


@dataclass(frozen=True, eq=False)
class Model:
    info: ModelInfo
    network: nn.Module

    @property
    def sde(self) -> ProcessSde:
        return ProcessSde(self._call, self.info.processes())

    def _call(self, state: GraphState, t: Tensor) -> dict[str, Tensor]:
        x, a = self.network(state["X"], state["A"], state.mask, t)
        return {"X": x, "A": a}

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def to(self, device: torch.device | str) -> Model:
        return Model(self.info, self.network.to(device))

    def fingerprint(self) -> str:
        """A digest of the card and the weights: what a measured property of the model is filed under."""
        digest = hashlib.sha256(self.info.model_dump_json(exclude={"sha256", "name", "provenance"}).encode())
        for name, value in sorted(self.network.state_dict().items()):
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def sizes(self, index: Tensor, seed: int) -> Tensor:
        """(B,) node counts, drawn from the training graphs' histogram by (seed, graph index)."""
        nodes = torch.tensor([n for n, _ in self.info.node_counts])
        counts = torch.tensor([c for _, c in self.info.node_counts], dtype=torch.float64)
        cumulative = counts.cumsum(0) / counts.sum()
        place = torch.searchsorted(cumulative, uniform(seed, index.cpu(), SIZES), right=True)
        return nodes[place.clamp(max=len(nodes) - 1)]

    def prior(self, index: Tensor, seed: int, sizes: Tensor | None = None) -> GraphState:
        """Start states of the graphs `index`: each depends on (seed, its index) only."""
        sizes = self.sizes(index, seed) if sizes is None else sizes
        slots = self.info.max_nodes
        mask = torch.arange(slots)[None, :] < sizes[:, None]
        rows = len(index)
        blank = {"X": torch.zeros(rows, slots, self.info.features), "A": torch.zeros(rows, slots, slots)}
        state = GraphState.of(mask, **blank).to(self.device)
        clock = torch.zeros(rows, dtype=torch.float64, device=self.device)
        draw = Draw(index.to(self.device), torch.zeros_like(index, device=self.device), clock, clock)
        z = PhiloxNoise(seed).normal(state, draw, PRIOR)
        processes = self.info.processes()
        return state.replace({name: z[name] * processes[name].prior_std for name in z})

    def decode(self, mean: GraphState) -> list[Graph] | list[Decoded]:
        """Graphs, or molecules, from the denoised output."""
        spec = self.info.molecule
        if spec is None:
            return decode_graphs(mean["A"].cpu(), mean.mask.cpu())
        return decode(mean["X"].cpu(), mean["A"].cpu(), mean.mask.cpu(), spec)
