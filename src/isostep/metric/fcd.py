"""Frechet ChemNet distance: d^2 = |m - m'|^2 + tr C + tr C' - 2 tr (C C')^1/2 of ChemNet's activations.

ChemNet reads canonical SMILES as 350 one-hot symbols (two convolutions, two stacked LSTMs that run in opposite
directions); its last hidden state, 512 numbers, describes a molecule. The weights come with the package `fcd-torch`,
whose own code is not imported: it calls functions that newer numpy and SciPy no longer have.

Behind the end of a SMILES all input is zero and the convolutions have no bias. So the first LSTM, which runs from
the end, passes one common sequence of states before it meets the molecule: computed once, for all molecules.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from isostep.base.errors import InputError, MissingPackageError
from isostep.base.progress import progress
from isostep.metric.base import Measure
from isostep.metric.molecules import Arrays, MoleculeMetric, MoleculeSet, compiled

if TYPE_CHECKING:
    import torch

WIDTH = 512
_SYMBOLS = ["C", "N", "O", "H", "F", "Cl", "P", "B", "Br", "S", "I", "Si", *"#()+-12345678=[]@cnosX."]
_PLACE = {symbol: i for i, symbol in enumerate(_SYMBOLS)}
_UNKNOWN, _END = _PLACE["X"], _PLACE["."]
_LENGTH, _STEPS = 350, 88
_SYMBOL = re.compile(r".[ril]|.")
_BATCH = 256
_MANY = 2000  # molecules


class FrechetDistance(MoleculeMetric):
    name = "fcd"
    definition = "Frechet distance of ChemNet activations of canonical SMILES; grows as the set shrinks, so state n"
    equals = "MOSES FCD/Test, GDSS, GruM, DVS (fcd_torch)"
    better = "lower"
    bounds = (0.0, np.inf)

    def fit(self, reference: MoleculeSet) -> dict[str, np.ndarray]:
        """Mean and upper triangle of the covariance, float32: the rounding moves FCD by less than 1e-6."""
        _at_least_two(reference)
        x = activations(reference.distinct)[reference.which].astype(float)
        covariance = np.cov(x.T)[np.triu_indices(WIDTH)]
        return {"mean": x.mean(0).astype(np.float32), "covariance": covariance.astype(np.float32)}

    def compare(self, generated: MoleculeSet, reference: Arrays) -> Measure:
        _at_least_two(generated)
        covariance = np.zeros((WIDTH, WIDTH))
        covariance[np.triu_indices(WIDTH)] = reference["covariance"]
        size, axes = np.linalg.eigh(covariance, UPLO="U")
        # With root root' = C', the eigenvalues of root' C root are those of C C'.
        root = axes * np.sqrt(size.clip(0))
        x = generated.remember("chemnet", lambda: activations(generated.distinct)) - reference["mean"].astype(float)
        y, square = x @ root, (x**2).sum(1)
        spread, turn = np.linalg.eigh(np.cov(y.T, fweights=generated.copies))
        point = np.sqrt(spread.clip(0)).sum()
        # A resample's product is nearly diagonal in this basis, so that float32 sums do for large sets.
        y = (y @ turn).astype(np.float32 if len(x) >= _MANY else float)

        def measure(weights: np.ndarray) -> float:
            w = generated.of_distinct(weights)
            one = 1 - weights @ weights  # 1 - 1/n for equal weights; 0 for a single item, whose spread is 0
            unbiased = 1 / one if one > 1e-9 else 0.0
            mean = w @ x
            trace = (w @ square - mean @ mean) * unbiased
            overlap = point if np.ptp(weights) == 0 else _overlap(y, w, float(unbiased))
            return float(mean @ mean + trace + size.sum() - 2 * overlap)

        return measure


def _overlap(y: np.ndarray, w: np.ndarray, unbiased: float) -> float:
    """Trace of the root of y's weighted covariance."""
    w = w.astype(y.dtype)
    drawn, mean = np.flatnonzero(w), (w @ y).astype(float)
    scaled, root = y[drawn], np.sqrt(w[drawn, None])
    scaled *= root
    if len(drawn) < WIDTH:  # a a' has the eigenvalues of a' a that are not 0
        scaled -= root * mean.astype(y.dtype)
        product = scaled @ scaled.T
    else:
        product = (scaled.T @ scaled).astype(float) - np.outer(mean, mean)
    return np.sqrt(np.linalg.eigvalsh(product * unbiased).clip(0)).sum()


def _at_least_two(molecules: MoleculeSet) -> None:
    if len(molecules) < 2:
        raise InputError(f"fcd needs at least 2 molecules for a covariance, got {len(molecules)}")


def activations(smiles: Sequence[str]) -> np.ndarray:
    """ChemNet's last hidden state of each SMILES, float32 (len, 512). Give canonical SMILES: the network is not blind
    to the way a molecule is written."""
    import torch

    tokens = [_tokens(text) for text in smiles]
    order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
    result = np.empty((len(tokens), WIDTH), np.float32)
    with torch.inference_mode(), progress("ChemNet", len(tokens), "molecules") as advance:
        for start in range(0, len(order), _BATCH):
            chosen = order[start : start + _BATCH]
            result[chosen] = _chemnet().forward([tokens[i] for i in chosen]).numpy()
            advance(len(chosen))
    return result


def _tokens(smiles: str) -> list[int]:
    """Symbol numbers of the first fragment, cut to the network's length, closed by the end symbol."""
    found = _SYMBOL.findall(smiles.split(".")[0])[: _LENGTH - 1]
    return [_PLACE.get(symbol, _UNKNOWN) for symbol in found] + [_END]


class _Lstm:
    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        self.inward = weights["weight_ih_l0"].T.contiguous()
        self.onward = weights["weight_hh_l0"].T.contiguous()
        self.bias = weights["bias_ih_l0"] + weights["bias_hh_l0"]

    def step(self, drive: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor, scratch: torch.Tensor) -> None:
        """One step in place; `drive` (B or 1, 4 H) is the input times the inward weights, plus the bias."""
        import torch

        torch.mm(hidden, self.onward, out=scratch)
        kernels = compiled()
        if kernels is not None:
            kernels.gates(scratch.numpy(), drive.numpy(), cell.numpy(), hidden.numpy())
            return
        into, keep, new, out = scratch.add_(drive).chunk(4, 1)
        cell.mul_(keep.sigmoid_()).addcmul_(into.sigmoid_(), new.tanh_())
        torch.mul(out.sigmoid_(), cell.tanh(), out=hidden)


class _ChemNet:
    def __init__(self, path: Path) -> None:
        import torch

        layers = torch.load(path, map_location="cpu", weights_only=True)
        (first, second, from_end, to_end) = (state for _, (state, _, _) in layers)
        self.first, self.second = first["weight"], second["weight"]
        self.from_end, self.to_end = _Lstm(from_end), _Lstm(to_end)
        # States of the first LSTM after 0, 1, 2, ... steps of empty input.
        hidden, cell, scratch = torch.zeros(1, 128), torch.zeros(1, 128), torch.empty(1, 512)
        self.hidden, self.cell = [hidden.clone()], [cell.clone()]
        for _ in range(_STEPS):
            self.from_end.step(self.from_end.bias[None], hidden, cell, scratch)
            self.hidden.append(hidden.clone())
            self.cell.append(cell.clone())
        self.empty_drive = torch.cat(self.hidden) @ self.to_end.inward + self.to_end.bias

    def forward(self, tokens: list[list[int]]) -> torch.Tensor:
        import torch

        x = self._convolve(tokens)
        steps, batch, _ = x.shape
        empty = _STEPS - steps
        hidden, cell = self.hidden[empty].repeat(batch, 1), self.cell[empty].repeat(batch, 1)
        outputs, scratch = [], torch.empty(batch, 4 * hidden.shape[1])
        for drive in (x @ self.from_end.inward + self.from_end.bias).flip(0):
            self.from_end.step(drive, hidden, cell, scratch)
            outputs.append(hidden.clone())
        hidden, cell, scratch = torch.zeros(batch, WIDTH), torch.zeros(batch, WIDTH), torch.empty(batch, 4 * WIDTH)
        for output in reversed(outputs):
            self.to_end.step(output @ self.to_end.inward + self.to_end.bias, hidden, cell, scratch)
        for drive in self.empty_drive[1 : empty + 1].flip(0):
            self.to_end.step(drive[None], hidden, cell, scratch)
        return hidden

    def _convolve(self, tokens: list[list[int]]) -> torch.Tensor:
        """(steps, batch, 32): both convolutions, only where the input is not empty."""
        import torch
        from torch.nn.functional import conv1d, pad, selu

        longest = max(map(len, tokens))
        x = torch.zeros(len(tokens), len(_SYMBOLS), longest)
        for row, symbols in enumerate(tokens):
            x[row, symbols, range(len(symbols))] = 1 / len(_SYMBOLS)
        half = min(longest // 2 + 1, _LENGTH // 2)
        quarter = min(half // 2 + 1, _STEPS)
        x = selu(conv1d(pad(x, (1, 2 * half + 1 - longest)), self.first, stride=2))
        x = selu(conv1d(pad(x, (1, 2 * quarter + 1 - half)), self.second, stride=2))
        return x.permute(2, 0, 1)


@functools.cache
def _chemnet() -> _ChemNet:
    spec = importlib.util.find_spec("fcd_torch")
    if spec is None or spec.origin is None:
        raise MissingPackageError("FCD needs the weights in the package 'fcd-torch': pip install fcd-torch")
    paths = sorted(Path(spec.origin).parent.glob("ChemNet_*.pt"))
    if not paths:
        raise InputError(f"no ChemNet_*.pt in {Path(spec.origin).parent}; reinstall: pip install fcd-torch")
    return _ChemNet(paths[-1])
