"""A model of one's own, so that every verb takes it: a network or a drift, and what its graphs are.

    predicts    the estimate that a score process needs from the network's output u, x_t = m D + s z:
    score       u
    noise       -u / s
    clean       (m u - x) / s^2
A bridge needs the clean graph itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import os
import pickle
import re
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Number
from typing import Any, Literal

import torch
from torch import Tensor, nn

from isostep.base.errors import InputError, IsostepError
from isostep.item import Decoder, Graph, Item
from isostep.item.base import Sketch
from isostep.item.decoding import decoder_for
from isostep.model.card import Provenance
from isostep.model.model import Model
from isostep.process import Process, ProcessSde
from isostep.process.sde import Sde, as_sde
from isostep.settings.schema import AutoChoice, SamplerPreset
from isostep.state import GraphState, Kind, expand

Predicts = Literal["score", "noise", "clean"]
REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
OF_TORCH = {*vars(nn.Module()), "_compiled_call_impl"}  # what every module has: weights, parts, mode, hooks


@dataclass(frozen=True)
class OwnCard:
    """What the verbs ask of a model's card."""

    name: str
    dataset: str
    decoder: Decoder
    sampler: SamplerPreset
    max_nodes: int
    node_counts: tuple[tuple[int, int], ...]
    kinds: Mapping[str, Kind]
    widths: Mapping[str, int]
    family: str = "own"
    weights: str = "raw"
    sha256: str | None = None
    provenance: Provenance = field(default=Provenance(source="the user's own", licence="the user's own"))

    @property
    def kind(self) -> str:
        return self.decoder.item.kind

    def blank(self, mask: Tensor) -> GraphState:
        return GraphState.zeros(mask, self.kinds, self.widths)


@dataclass(frozen=True)
class FunctionDecoder:
    """A user's function from a state to a list of items."""

    function: Callable[[GraphState], list[Any]]
    item: type[Item] = Graph

    def __call__(self, mean: GraphState) -> list[Any]:
        items = self.function(mean)
        if len(items) != mean.batch:
            raise InputError(f"the decoder returned {len(items)} items for {mean.batch} graphs; return one for each")
        if strange := [item for item in items if not isinstance(item, self.item)]:
            raise InputError(
                f"the decoder returned {type(strange[0]).__name__}, expected {self.item.__name__}; "
                f"make them with isostep.item.{self.item.__name__}"
            )
        return items

    def sketch(self, state: GraphState, k: int) -> Sketch:
        return decoder_for(None, state.nodes, 1.0).sketch(state, k)


@dataclass(frozen=True)
class Converted:
    """A network's outputs as the estimates that the processes need."""

    network: Any
    processes: Mapping[str, Process]
    predicts: Predicts
    noise_at_one: bool

    def __call__(self, state: GraphState, t: Tensor) -> dict[str, Tensor]:
        out = self.network(state, 1 - t if self.noise_at_one else t)
        if not isinstance(out, Mapping):
            raise InputError(
                f"the network must return a mapping with {', '.join(state.components)}, got {type(out).__name__}"
            )
        return {name: self._estimate(name, value, state, t) for name, value in out.items()}

    def _estimate(self, name: str, value: Tensor, state: GraphState, t: Tensor) -> Tensor:
        process = self.processes.get(name)
        if process is None or process.estimates == self.predicts:
            return value
        mean, std = process.marginal(t.double())
        if self.predicts == "noise":
            return -value / expand(std, value)
        return (expand(mean, value) * value - state[name]) / expand(std.square(), value)


@dataclass(frozen=True)
class FreeDrift:
    """A drift given as a function, with its noise: a number, one per component, or a function of t."""

    drift: Callable[[GraphState, Tensor], Mapping[str, Tensor]]
    noise: Any

    def diffusion(self, t: Tensor) -> Any:
        return self.noise(t) if callable(self.noise) else self.noise


def _module(network: Any) -> nn.Module | None:
    inner = network.drift if isinstance(network, FreeDrift) else network
    return inner if isinstance(inner, nn.Module) else None


@dataclass(frozen=True, eq=False)
class OwnModel(Model):
    """Made by `wrap`."""

    info: OwnCard  # pyright: ignore[reportIncompatibleVariableOverride]
    network: Any
    processes: Mapping[str, Process] | None = None
    predicts: Predicts = "score"
    prior_std: float = 1.0
    noise_at_one: bool = False

    @property
    def sde(self) -> Sde:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self.processes is None:
            return as_sde(self.network)
        network = Converted(self.network, self.processes, self.predicts, self.noise_at_one)
        return ProcessSde(network, self.processes, raw=False)

    @property
    def device(self) -> torch.device:
        module = _module(self.network)
        weights = None if module is None else next(module.parameters(), None)
        return torch.device("cpu") if weights is None else weights.device

    def to(self, device: torch.device | str) -> OwnModel:
        if (module := _module(self.network)) is not None:
            module.to(device)  # in place
            return self
        if torch.device(device).type == "cpu":
            return self
        raise InputError(f"{self.info.name} is not a torch module, so it cannot be moved to {device}; move its parts")

    def with_sampler(self, sampler: SamplerPreset) -> OwnModel:
        return replace(self, info=replace(self.info, sampler=sampler))

    def fingerprint(self) -> str:
        """A digest of the settings and of everything the network and the decoder hold."""
        card = {key: str(value) for key, value in vars(self.info).items() if key not in ("name", "sampler", "decoder")}
        rest = (self.processes, self.predicts, self.prior_std, self.noise_at_one)
        digest = hashlib.sha256(repr((sorted(card.items()), rest)).encode())
        network = self.network
        try:
            digest.update(contents(self.info.decoder))
            for part in _module_contents(network) if isinstance(network, nn.Module) else [contents(network)]:
                digest.update(part)
        except Exception as error:  # what is pickled may run the user's code: any
            cause = str(error).split("\n")[0]
            raise InputError(
                f"{self.info.name} cannot be told from other models ({cause}): define its classes and functions at "
                "the top level of a module that can be imported"
            ) from error
        return digest.hexdigest()

    @property
    def prior_stds(self) -> dict[str, float]:
        known = self.processes
        return {name: self.prior_std if known is None else known[name].prior_std for name in self.info.kinds}


def wrap(
    network: Any,
    processes: Mapping[str, Process] | None = None,
    *,
    nodes: int | Mapping[int, int] | Sequence[int],
    features: int | Mapping[str, int] = 1,
    kinds: Mapping[str, Kind] | None = None,
    predicts: Predicts | None = None,
    items: Literal["graph"] | Sequence[str] | Callable[[GraphState], list[Any]] = "graph",
    item: type[Item] = Graph,
    scale: float = 3.0,
    prior_std: float | None = None,
    diffusion: Any = None,
    noise_at_one: bool = False,
    name: str = "own-model",
    dataset: str = "own",
    sampler: SamplerPreset | None = None,
) -> OwnModel:
    """A model that every verb takes, from a network or a drift of your own.

    `network(state, t)` returns one tensor per component (a mapping), masked and, for edges, symmetric; it `predicts`
    the score, the noise or the clean graph of the `processes`, one per component. Time runs from 0 (noise) to 1 (data);
    `noise_at_one`: the network was trained with time the other way round, as most score models are. A module is put
    into evaluation mode. Without `processes`, `network` is an object with `drift(state, t)` and `diffusion(t)`, or a
    function, the drift, with its `diffusion`: a number (0: an ODE, flow matching), one per component, or a function of
    t; it starts from noise of `prior_std` (1).

    `nodes`: the number of nodes of every graph, a histogram {nodes: how many}, or the sizes of the training graphs.
    `features`: of the component X, or by name; an edge component without features is (B, N, N). `kinds`: "node",
    "position", "edge" or "graph" of components of other names; a drift without them has X and A. `items`: "graph", the
    list of atoms that X's features stand for (molecules, A = bond order / `scale`), or a function from a state to a
    list of `item`s.

    Example:
        >>> import isostep
        >>> from isostep.process import VP
        >>> def zero(state, t):                                      # your network
        ...     return {"A": 0 * state["A"]}
        >>> model = isostep.wrap(zero, {"A": VP(beta_max=5.0)}, predicts="noise", nodes=6, name="mine")
        >>> isostep.sample(model, 3, calls=10, schedule="cosine", solver="exponential")
        SampleResult(mine: 3 of 3 graphs, 10 network calls)
    """
    counts = _counts(nodes)
    widths = dict(features) if isinstance(features, Mapping) else {"X": features}
    if any(not isinstance(width, Integral) or width < 1 for width in widths.values()):
        raise InputError(f"features must be whole numbers from 1 on, got {features!r}")
    if processes is not None and not isinstance(processes, Mapping):
        raise InputError(f"processes must name a process for each component, such as {{'A': VP()}}, got {processes!r}")
    names: dict[str, Kind] = dict(kinds or {})
    for component in processes or names or ("X", "A"):
        names.setdefault(component, "edge" if component in ("A", "E") else "node")
    widths = {component: width for component, width in widths.items() if component in names}
    if processes is not None and (strange := names.keys() ^ processes.keys()):
        raise InputError(f"component {sorted(strange)[0]!r} has a kind or a process, but not both; name it in both")
    if diffusion is not None:
        if processes is not None:
            raise InputError("diffusion goes with a drift; with processes, these know their noise")
        network = FreeDrift(network, diffusion)
    if processes is None:
        as_sde(network)  # refuses what has no drift
        if predicts is not None or noise_at_one:
            raise InputError("predicts and noise_at_one go with processes; a drift is taken as it is")
    elif prior_std is not None:
        raise InputError("prior_std goes with a drift; a process has its own, such as VE(prior_std=...)")
    elif not callable(network):
        raise InputError(f"network must be called with (state, t), got {type(network).__name__}")
    says = _predicts(processes, predicts)
    if (module := _module(network)) is not None:
        module.eval()
    most = max(n for n, _ in counts)
    if callable(items):
        decoder: Decoder = FunctionDecoder(items, item)
    else:
        decoder = decoder_for(None if items == "graph" else tuple(items), most, scale)
    # A drift alone has no linear part that an exponential step could use.
    plain = () if processes is not None else (AutoChoice(calls=1000, schedule="uniform", solver="euler"),)
    preset = sampler or SamplerPreset(auto=plain)
    info = OwnCard(name, dataset, decoder, preset, most, counts, names, widths)
    info.blank(torch.ones(1, 1))  # refuses kinds and features that do not fit
    model = OwnModel(info, network, None, processes, says, 1.0 if prior_std is None else prior_std, noise_at_one)
    _try(model)
    return model


@contextlib.contextmanager
def _users_code(what: str, remedy: str = "") -> Iterator[None]:
    """Whatever the user's code raises becomes one line; Isostep's own errors are one already."""
    try:
        yield
    except IsostepError:
        raise
    except Exception as error:
        cause = str(error).split("\n")[0]
        raise InputError(f"{what} {type(error).__name__}: {cause}{remedy}") from error


def is_reference(text: str) -> bool:
    """Whether a model is named as code: "package.module:function"."""
    return REFERENCE.fullmatch(text) is not None


def from_reference(text: str) -> Model:
    """The model that an importable function returns. This runs the user's code, from the current folder, too."""
    module, _, function = text.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)  # after the installed packages: a file here hides none of them
    with _users_code(f"{text} fails:", "; call it in Python to see where"):
        try:
            made = getattr(importlib.import_module(module), function)()
        except ImportError as error:
            raise InputError(f"cannot import {module!r}: {error}; check the name and the current folder") from error
        except AttributeError as error:
            raise InputError(f"{text}: {error}; name a function that returns isostep.wrap(...)") from error
    if not isinstance(made, Model):
        raise InputError(f"{text} returned {type(made).__name__}; it must return a model, such as isostep.wrap(...)")
    return made


class _Contents(pickle.Pickler):
    """A pickle of what an object holds: equal in every process, whatever the addresses and the order of sets."""

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, Tensor) and obj.layout == torch.strided:
            return str(obj.dtype), tuple(obj.shape), _bytes(obj)
        if isinstance(obj, set | frozenset):
            return "set", sorted(map(contents, obj))
        return "weak" if isinstance(obj, weakref.ref) else None  # what it refers to is held elsewhere


def contents(value: Any) -> bytes:
    """Bytes that tell a value from others."""
    file = io.BytesIO()
    _Contents(file, protocol=5).dump(value)
    return file.getvalue()


def _module_contents(network: nn.Module) -> Iterator[bytes]:
    for name, part in network.named_modules():
        if "_torchdynamo_orig_callable" in vars(part):  # torch.compile's, full of addresses; its original comes next
            continue
        plain = {key: value for key, value in vars(part).items() if key != "training" and _plain(value)}
        yield f"{name} {type(part).__qualname__} {sorted(plain.items())}".encode()
        rest = {key: value for key, value in vars(part).items() if key not in plain.keys() | OF_TORCH}
        hooks = [*part._forward_pre_hooks.values(), *part._forward_hooks.values()]
        if rest or hooks:
            yield contents([sorted(rest.items()), hooks])
    buffers = network.named_buffers(remove_duplicate=False)  # with those that state_dict() leaves out
    for name, value in sorted([*network.named_parameters(remove_duplicate=False), *buffers]):
        yield name.encode() + _bytes(value)


def _bytes(value: Tensor) -> bytes:
    return value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def _plain(value: Any) -> bool:
    """A setting of a module that its weights do not tell."""
    return all(map(_plain, value)) if isinstance(value, tuple) else isinstance(value, bool | int | float | str | None)


def _counts(nodes: Any) -> tuple[tuple[int, int], ...]:
    try:
        if isinstance(nodes, Mapping):
            pairs = sorted((_whole(n), _whole(count)) for n, count in nodes.items())
        else:
            pairs = sorted(Counter(map(_whole, [nodes] if isinstance(nodes, Number) else nodes)).items())
    except (TypeError, ValueError, OverflowError):
        pairs = []
    if not pairs or any(n < 1 or count < 1 for n, count in pairs):
        raise InputError(f"nodes must be a number, a histogram or a list of sizes from 1 on, got {str(nodes)[:60]}")
    return tuple(pairs)


def _whole(value: Any) -> int:
    if int(value) != float(value):
        raise ValueError("not whole")
    return int(value)


def _predicts(processes: Mapping[str, Process] | None, predicts: Predicts | None) -> Predicts:
    if processes is None:
        return "score"
    needed: set[Predicts] = {process.estimates for process in processes.values()}
    if predicts is None:
        if len(needed) != 1:
            raise InputError("components of score SDEs and of bridges are mixed; say what the network predicts")
        return needed.pop()
    if predicts not in ("score", "noise", "clean"):
        raise InputError(f"predicts must be score, noise or clean, got {predicts!r}")
    if "clean" in needed and predicts != "clean":
        raise InputError(f"a bridge needs the clean graph, but the network predicts the {predicts}; use a score SDE")
    return predicts


def _try(model: OwnModel) -> None:
    """Evaluate and decode the smallest and the largest graph: what is wrong shows here, not in the middle of a run."""
    sizes = [n for n, _ in model.info.node_counts]
    state = model.prior(torch.arange(2), 0, torch.tensor([min(sizes), max(sizes)]))
    with torch.no_grad(), _users_code(f"the network fails on graphs of {min(sizes)} and {max(sizes)} nodes:"):
        found = model.sde.evaluate(state, torch.full((2,), 0.5, dtype=torch.float64, device=state.device))
    if not all(bool(drift.isfinite().all()) for drift in found.drift.values()):
        raise InputError("the network's output is not finite at t = 0.5; check its weights")
    for name, drift in found.drift.items():
        outside = state.masks.of(state.kinds[name], drift.ndim)
        if outside is not None and bool((drift * ~outside).ne(0).any()):
            raise InputError(f"component {name} of the network's output is not zero on padded nodes or the diagonal")
        if state.kinds[name] == "edge" and not torch.allclose(drift, drift.transpose(1, 2), atol=1e-5):
            raise InputError(
                f"component {name} of the network's output is not symmetric; average it with its transpose"
            )
    with _users_code("items do not fit: decoding a state fails with"):
        model.decode(state)
