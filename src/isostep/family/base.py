"""What belongs to one kind of model, in one record. All else asks the record; nothing asks for a family by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from isostep.base.errors import InputError
from isostep.base.schema import Frozen
from isostep.dataset.examples import TrainingData
from isostep.item import Decoder
from isostep.item.decoding import decoder_for
from isostep.network.fast import FastNetwork, FastPath, FastSettings
from isostep.process import Process, make_process
from isostep.process.matching import Matching
from isostep.state import Kind


@dataclass(frozen=True, eq=False)
class Training:
    """How models are trained. `data` and `network` check a configuration's tables [data] and [name of the family]."""

    loss: Matching
    data: type[Frozen]  # has `name`, the dataset's
    load: Callable[[Any], TrainingData]  # from the table [data]
    network: type[Frozen]
    params: Callable[[Any, Any, TrainingData], dict[str, Any]]  # for `Family.network`, from [network], [data], the data
    # A faster way through it, where there is one; half: with products in bfloat16.
    fused: Callable[[Any, bool], nn.Module | None] = lambda network, half: None
    apart: Callable[[Any], Iterable[nn.Module]] = lambda network: (network,)  # clipped apart: their losses do not mix
    repeated: Callable[[Any], Iterable[nn.Module]] = nn.Module.children  # what `compile` fuses


@dataclass(frozen=True, eq=False)
class ReleasedFormat:
    """Where the authors' files keep what; network parts and components have the file's names on the right."""

    params: Mapping[str, str]  # network part ("" for a network of one part) -> key of its settings
    weights: Mapping[str, tuple[str, str]]  # prefix of a part's weights -> keys of its state dict and of its average
    config: str  # key of all other settings
    processes: str  # their table with a process per component
    components: Mapping[str, str]
    process: Callable[[Mapping[str, Any]], dict[str, Any]]  # released process settings under our names

    @property
    def keys(self) -> frozenset[str]:
        """A file that has them all is of this family."""
        return frozenset((*self.params.values(), *(state for state, _ in self.weights.values())))


def usual_decoder(card: Any) -> Decoder:
    """Molecules of the card's atoms, or graphs where it names none."""
    return decoder_for(card.atoms, card.max_nodes, card.scale)


@dataclass(frozen=True, eq=False)
class Family:
    """`name` as in cards and configurations, `title` as in sentences.

    `network(params)` takes and returns the components in their order here: (x, a, ..., mask, t) -> (x, a, ...). Its
    outputs are what the `processes` that a model may have turn into a score or a clean graph.
    """

    name: str
    title: str
    components: Mapping[str, Kind]
    network: Callable[[Mapping[str, Any]], nn.Module]
    processes: tuple[str, ...]
    decoder: Callable[[Any], Decoder] = usual_decoder  # of a model with this card
    training: Training | None = None
    fast: FastPath | None = None
    released: ReleasedFormat | None = None

    def make_processes(self, settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Process]:
        """One process per component, from plain data."""
        if sorted(settings) != sorted(self.components):
            raise InputError(
                f"process must name the components {' and '.join(self.components)}, got {sorted(settings)}"
            )
        made = {name: make_process(one) for name, one in settings.items()}
        if strange := [one["type"] for one in settings.values() if one["type"] not in self.processes]:
            raise InputError(f"a process of {self.title} is one of {', '.join(self.processes)}, got {strange[0]}")
        return made

    def fast_network(self, network: nn.Module, settings: FastSettings | None = None) -> FastNetwork:
        return FastNetwork(network, self.fast, tuple(self.components.values()), settings)
