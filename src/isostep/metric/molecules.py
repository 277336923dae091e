"""Molecules as a set, and the metrics that count them.

valid = share of valid molecules; unique = distinct / all; novel = distinct molecules outside the training set /
distinct; snn = mean over generated molecules of the highest Tanimoto similarity to a reference molecule;
scaffold, fragment = cosine of two vectors of counts, <a, b> / (|a| |b|).

All but `valid` take canonical SMILES of (corrected) molecules, repeated ones included. A metric has two halves:
`fit` turns a reference set into a few arrays, `compare` measures a generated set against those arrays.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from scipy import sparse

from isostep.base.cache import kept
from isostep.base.errors import InputError
from isostep.base.processes import safe_path
from isostep.item.molecule import canonical
from isostep.metric.base import Measure

if TYPE_CHECKING:
    from rdkit.Chem import Mol

Arrays = Mapping[str, np.ndarray]
_CHUNK = 500  # molecules handed to a worker process at a time


class MoleculeSet(Sequence[str]):
    """Canonical SMILES in order. The heavy work is done once per distinct molecule, in `workers` processes."""

    def __init__(self, smiles: Sequence[str], workers: int = 1, home: Path | None = None) -> None:
        self.smiles = list(smiles)
        self.workers, self.home = workers, home
        place: dict[str, int] = {}
        self.which = np.array([place.setdefault(text, len(place)) for text in self.smiles], np.int64)
        self.distinct = list(place)

    @staticmethod
    def of(molecules: Iterable[str], workers: int = 1) -> MoleculeSet:
        """From any SMILES; one that RDKit rejects raises with its number, counted from 1."""
        if isinstance(molecules, MoleculeSet):
            return molecules
        found = []
        for number, text in enumerate(molecules, start=1):
            found.append(canonical(text))
            if found[-1] is None:
                raise InputError(f"molecule {number}: RDKit cannot read the SMILES {text!r}; remove or mend it")
        return MoleculeSet(found, workers)

    def __len__(self) -> int:
        return len(self.smiles)

    def __getitem__(self, index):
        return self.smiles[index]

    @functools.cached_property
    def copies(self) -> np.ndarray:
        """How often each distinct molecule occurs."""
        return np.bincount(self.which, minlength=len(self.distinct))

    def of_distinct(self, weights: np.ndarray) -> np.ndarray:
        """Weights of the distinct molecules from weights of all."""
        return np.bincount(self.which, weights, len(self.distinct))

    def remember(self, name: str, build: Callable[[], np.ndarray]) -> np.ndarray:
        """What `build` makes of the distinct molecules; kept in `home`, if there is one."""
        if self.home is None:
            return build()
        key = hashlib.sha256("\n".join(self.distinct).encode()).hexdigest()
        return kept(self.home / f"{name}-{key[:20]}.npz", lambda: {"rows": build()})["rows"]

    def map(self, function: Callable[[Mol], Any]) -> list:
        """`function` of every distinct molecule."""
        if self.workers == 1 or len(self.distinct) <= _CHUNK:
            return [function(molecule) for molecule in self._molecules]
        chunks = [self.distinct[i : i + _CHUNK] for i in range(0, len(self.distinct), _CHUNK)]
        with safe_path(), ProcessPoolExecutor(self.workers, get_context("spawn")) as pool:
            parts = pool.map(functools.partial(_map_chunk, function), chunks)
            return [value for part in parts for value in part]

    @functools.cached_property
    def _molecules(self) -> list[Mol]:
        return list(_parse(self.distinct))


def _parse(smiles: Iterable[str]) -> Iterator[Mol]:
    from rdkit import Chem

    return map(Chem.MolFromSmiles, smiles)


def _map_chunk(function: Callable[[Mol], Any], smiles: list[str]) -> list:
    return [function(molecule) for molecule in _parse(smiles)]


@runtime_checkable
class Fitted(Protocol):
    """Statistics of a reference, kept for several metrics."""

    def arrays_of(self, metric: Any) -> Arrays:
        """What the metric's `fit` returned."""
        ...

    def floor_of(self, metric: Any, n: int) -> float | None:
        """The metric's value for n training molecules."""
        ...


class FittedMetric:
    """`fit` a reference set to arrays, `compare` a generated set with them; `collected` is what both are given."""

    name: ClassVar[str]
    definition: ClassVar[str]
    equals: ClassVar[str]
    better: ClassVar[Literal["lower", "higher"]] = "higher"
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    against: ClassVar[Literal["test", "train"]] = "test"
    needs: ClassVar[str] = "a {against} set"
    collected: ClassVar[Callable[[Any], Any]] = list

    def fit(self, reference: Any) -> dict[str, np.ndarray]:
        """What `compare` needs of the reference, in the form that is stored; nothing, where it needs none."""
        return {}

    def compare(self, generated: Any, reference: Arrays) -> Measure:
        """The value as a function of weights over `generated`."""
        raise NotImplementedError

    def prepare(self, generated: Sequence[Any], reference: Any) -> Measure:
        """`reference`: fitted statistics, or the items themselves."""
        collected = type(self).collected
        fitted = isinstance(reference, Fitted)
        arrays = reference.arrays_of(self) if fitted else self.fit(collected(reference))
        return self.compare(collected(generated), arrays)

    def floor(self, reference: Any, n: int) -> float | None:
        """The value of n training molecules against the same reference."""
        return reference.floor_of(self, n) if isinstance(reference, Fitted) else None


class MoleculeMetric(FittedMetric):
    """Of canonical SMILES."""

    collected = staticmethod(MoleculeSet.of)


@dataclass(frozen=True)
class Validity:
    """Share of true flags; `corrected` says whether the flags were set before valence correction."""

    corrected: bool
    name: ClassVar[str] = "valid"

    @property
    def title(self) -> str:
        return self.name if self.corrected else f"{self.name} (after correction)"

    better: ClassVar[Literal["lower", "higher"]] = "higher"
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    @property
    def definition(self) -> str:
        if self.corrected:
            return "validity without correction: share of molecules that pass RDKit's property check as generated"
        return "share of SMILES that RDKit accepts as given: after correction, if they were corrected before"

    @property
    def equals(self) -> str:
        return "GDSS, GruM, DVS (validity without correction)" if self.corrected else "MOSES valid"

    def prepare(self, generated: Sequence[bool], reference: Any = None) -> Measure:
        flags = np.asarray(generated, float)
        return lambda weights: _clean(weights @ flags)


class Uniqueness(MoleculeMetric):
    name = "unique"
    definition = "distinct canonical SMILES / all molecules; an item counts as 1 / its number of copies"
    equals = "MOSES unique@n, GDSS, GruM"

    def compare(self, generated: MoleculeSet, reference: Arrays) -> Measure:
        share = _share(generated)
        return lambda weights: _clean(weights @ share)


class Novelty(MoleculeMetric):
    name = "novel"
    definition = (
        "distinct molecules whose canonical SMILES, stereo marks removed, is not in the training set / distinct "
        "molecules; the training set is kept as 40-bit hashes"
    )
    equals = "MOSES Novelty, GDSS, GruM where the training set has no stereo marks"
    against = "train"

    def fit(self, reference: MoleculeSet) -> dict[str, np.ndarray]:
        hashes = np.unique(hashes_of(map(flat, reference.distinct)))
        return {"gaps": np.diff(hashes, prepend=np.uint64(0))}

    def compare(self, generated: MoleculeSet, reference: Arrays) -> Measure:
        known = np.cumsum(reference["gaps"], dtype=np.uint64)
        novel = ~np.isin(hashes_of(map(flat, generated.distinct)), known)
        share = _share(generated)
        counted = share * novel[generated.which]
        return lambda weights: _clean((weights @ counted) / (weights @ share))


def _share(generated: MoleculeSet) -> np.ndarray:
    """1 / number of copies, per item."""
    return 1 / np.bincount(generated.which)[generated.which]


def _clean(share: Any) -> float:
    """A sum of n weights 1/n is 1 but for rounding; all or none must read 1 or 0."""
    return round(float(share), 12)


def flat(smiles: str) -> str:
    """Canonical SMILES without stereo marks: generated graphs carry none."""
    if not any(mark in smiles for mark in "@/\\"):
        return smiles
    from rdkit import Chem

    molecule = Chem.MolFromSmiles(smiles)
    Chem.RemoveStereochemistry(molecule)
    return Chem.MolToSmiles(Chem.MolFromSmiles(Chem.MolToSmiles(molecule)))


def hashes_of(texts: Iterable[str]) -> np.ndarray:
    """40 bits of BLAKE2b per text, as uint64: a stranger is taken for one of 250,000 texts once in 4 million."""
    digests = (hashlib.blake2b(text.encode(), digest_size=5).digest() for text in texts)
    return np.fromiter((int.from_bytes(digest, "big") for digest in digests), np.uint64)


class CountSimilarity(MoleculeMetric):
    """Cosine of the counts of parts; 0 where either set has no such part."""

    parts: ClassVar[Callable[[Mol], list[str]]]

    def fit(self, reference: MoleculeSet) -> dict[str, np.ndarray]:
        owner, part = self._parts(reference)
        kinds, place = np.unique(part, return_inverse=True)
        counts = np.bincount(place, reference.of_distinct(np.ones(len(reference)))[owner], len(kinds))
        return {"hashes": kinds, "counts": counts.astype(np.uint32)}

    def compare(self, generated: MoleculeSet, reference: Arrays) -> Measure:
        owner, part = self._parts(generated)
        kinds, place = np.unique(np.concatenate([reference["hashes"], part]), return_inverse=True)
        known, found = np.split(place, [len(reference["hashes"])])
        aim = np.zeros(len(kinds))
        aim[known] = reference["counts"]
        counts = sparse.csr_matrix((np.ones(len(found)), (found, owner)), (len(kinds), len(generated.distinct)))

        def measure(weights: np.ndarray) -> float:
            mean = counts @ generated.of_distinct(weights)
            scale = np.sqrt((mean @ mean) * (aim @ aim))
            return float(mean @ aim / scale) if scale > 0 else 0.0

        return measure

    def _parts(self, molecules: MoleculeSet) -> tuple[np.ndarray, np.ndarray]:
        """(index of the distinct molecule, hash of the part), one entry for every part."""
        found = molecules.map(type(self).parts)
        owner = np.repeat(np.arange(len(found)), [len(parts) for parts in found])
        return owner, hashes_of(part for parts in found for part in parts)


def scaffolds(molecule: Mol) -> list[str]:
    """The Murcko scaffold, if it has at least two rings."""
    from rdkit import Chem
    from rdkit.Chem.Scaffolds import MurckoScaffold

    scaffold = MurckoScaffold.GetScaffoldForMol(molecule)
    return [Chem.MolToSmiles(scaffold)] if scaffold.GetRingInfo().NumRings() >= 2 else []


def fragments(molecule: Mol) -> list[str]:
    """The pieces left when every BRICS bond is cut."""
    from rdkit import Chem
    from rdkit.Chem.rdmolops import FragmentOnBRICSBonds

    return Chem.MolToSmiles(FragmentOnBRICSBonds(molecule)).split(".")


class ScaffoldSimilarity(CountSimilarity):
    name = "scaffold"
    definition = "cosine of the counts of Murcko scaffolds with at least two rings; 0 if there are none"
    equals = "MOSES Scaf/Test"
    parts = staticmethod(scaffolds)


class FragmentSimilarity(CountSimilarity):
    name = "fragment"
    definition = "cosine of the counts of BRICS fragments"
    equals = "MOSES Frag/Test"
    parts = staticmethod(fragments)


class NearestNeighbour(MoleculeMetric):
    name = "snn"
    definition = "mean highest Tanimoto similarity to a test molecule, Morgan fingerprints of radius 2, 1024 bits"
    equals = "MOSES SNN/Test"

    def fit(self, reference: MoleculeSet) -> dict[str, np.ndarray]:
        return {"fingerprints": np.unique(_fingerprints(reference), axis=0)}

    def compare(self, generated: MoleculeSet, reference: Arrays) -> Measure:
        nearest = highest_tanimoto(_fingerprints(generated), reference["fingerprints"])[generated.which]
        return lambda weights: float(weights @ nearest)


@functools.cache
def compiled() -> Any:
    """The module `kernels`, or None where the extra `fast` is not installed."""
    try:
        from isostep.metric import kernels
    except ImportError:
        return None
    return kernels


BITS = 1024


def fingerprint(molecule: Mol) -> bytes:
    """Morgan fingerprint of radius 2, 1024 bits."""
    from rdkit.DataStructs import BitVectToBinaryText

    return BitVectToBinaryText(_generator().GetFingerprint(molecule))


@functools.cache
def _generator():
    from rdkit.Chem import rdFingerprintGenerator

    return rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=BITS)


def _fingerprints(molecules: MoleculeSet) -> np.ndarray:
    def build() -> np.ndarray:
        return np.frombuffer(b"".join(molecules.map(fingerprint)), np.uint8).reshape(-1, BITS // 8)

    return molecules.remember("morgan", build)


def highest_tanimoto(a: np.ndarray, b: np.ndarray, block: int = 2048) -> np.ndarray:
    """max_j |a_i and b_j| / |a_i or b_j| of packed fingerprints, block by block (exact: counts fit float32)."""

    def blocks(packed: np.ndarray) -> Iterator[np.ndarray]:
        for start in range(0, len(packed), block):
            yield np.unpackbits(packed[start : start + block], axis=1).astype(np.float32)

    best, kernels = np.zeros(len(a)), compiled()
    if kernels is not None and len(b):
        words = [np.ascontiguousarray(packed).view(np.uint64) for packed in (a, b)]
        kernels.nearest(words[0], np.ascontiguousarray(words[1].T), best)
        return best
    for j in blocks(b):
        start = 0
        for i in blocks(a):
            both = i @ j.T
            either = i.sum(1)[:, None] + j.sum(1) - both
            similarity = np.divide(both, either, out=np.zeros_like(both), where=either > 0)
            part = best[start : start + len(i)]
            np.maximum(part, similarity.max(1), out=part)
            start += len(i)
    return best
