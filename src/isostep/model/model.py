"""Something to sample from: a network, one process per component, a decoder and a card."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from isostep.base.errors import InputError
from isostep.family import find_family
from isostep.item import Decoder
from isostep.model.card import ModelInfo
from isostep.network import assemble
from isostep.network.fast import FastNetwork, FastSettings
from isostep.noise import SIZES, standard_normal, uniform
from isostep.process import ProcessSde
from isostep.settings.schema import SamplerPreset
from isostep.state import GraphState


@dataclass(frozen=True, eq=False)
class Model:
    info: ModelInfo
    network: nn.Module
    home: Path | None = None  # the model's folder: measured properties are kept there
    fast: FastSettings | None = field(default=None, kw_only=True)  # None: as the environment says

    @staticmethod
    def of(info: ModelInfo, weights: Mapping[str, Tensor]) -> Model:
        """Build the network that the card describes, and try it on an empty graph of two nodes."""
        model = Model(info, assemble(find_family(info.family).network, info.network, weights))
        blank = info.blank(torch.ones(1, 2))
        try:
            with torch.no_grad():
                out = model.network(*blank.components.values(), blank.mask, torch.zeros(1))
        except (RuntimeError, IndexError) as error:
            cause = str(error).split("\n")[0]
            raise InputError(f"the network does not take {info.features} node features: {cause}") from error
        found, expected = [tuple(part.shape) for part in out], [tuple(x.shape) for x in blank.components.values()]
        if found != expected:
            raise InputError(f"the network returns shapes {found} for {', '.join(blank.components)} of {expected}")
        if not all(bool(part.isfinite().all()) for part in out):
            raise InputError("the network returns values that are not finite; its weights are damaged")
        return model

    @property
    def sde(self) -> ProcessSde:
        return ProcessSde(self._call, self.info.processes())

    @property
    def fast_settings(self) -> FastSettings:
        return self.fast or FastSettings.from_environment()

    @cached_property
    def _fast(self) -> FastNetwork:
        return find_family(self.info.family).fast_network(self.network, self.fast_settings)

    def _call(self, state: GraphState, t: Tensor) -> dict[str, Tensor]:
        names = find_family(self.info.family).components
        return dict(zip(names, self._fast(*(state[name] for name in names), state.mask, t), strict=True))

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def to(self, device: torch.device | str) -> Model:
        return replace(self, network=self.network.to(device))

    def with_sampler(self, sampler: SamplerPreset) -> Model:
        """The same model with other words on how to sample it."""
        return replace(self, info=self.info.model_copy(update={"sampler": sampler}))

    def fingerprint(self) -> str:
        """A digest of the card and the weights, wherever they came from; preferred settings do not decide a graph."""
        ignored = {"name", "provenance", "sha256", "sampler"}
        digest = hashlib.sha256(self.info.model_dump_json(exclude=ignored).encode())
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
        mask = torch.arange(self.info.max_nodes)[None, :] < sizes[:, None]
        z = standard_normal(self.info.blank(mask).to(self.device), seed, index)
        return z.replace({name: value * self.prior_stds[name] for name, value in z.components.items()})

    @property
    def prior_stds(self) -> dict[str, float]:
        return {name: process.prior_std for name, process in self.info.processes().items()}

    def decode(self, mean: GraphState) -> list[Any]:
        """Items from the denoised output."""
        return self.decoder(mean)

    @property
    def decoder(self) -> Decoder:
        return self.info.decoder
