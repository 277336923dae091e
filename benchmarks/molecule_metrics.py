"""Speed of the molecule metrics.

    python benchmarks/molecule_metrics.py [--json]          NSPDK of 1000 against 1000 molecules, against all pairs
    python benchmarks/molecule_metrics.py --full [--json]   every metric of 10,000 molecules against QM9's test set
    python benchmarks/molecule_metrics.py --chemnet [--json]  ChemNet of 500 molecules, against fcd_torch as published

Molecules come from `isostep data`; both figures of a ratio are measured in the same run.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

import numpy as np
from rdkit import Chem

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.oracles import nspdk_pairwise

from isostep.dataset import load
from isostep.metric.base import evaluate_metric
from isostep.metric.evaluate import evaluate
from isostep.metric.fcd import activations
from isostep.metric.molecules import MoleculeSet, canonical
from isostep.metric.nspdk import LabelledGraph, MoleculeNspdk
from output import show


def sample(dataset: str, split: str, count: int) -> list[str]:
    smiles = load(dataset).split(split)
    chosen = np.random.default_rng(0).permutation(len(smiles))[:count]
    return [canonical(smiles[i]) or "" for i in chosen]


def nspdk(dataset: str, count: int) -> dict:
    """Both sides start from SMILES."""
    ours, theirs = sample(dataset, "train", count), sample(dataset, "test", count)
    start = time.perf_counter(), time.process_time()
    fast = evaluate_metric(MoleculeNspdk(), MoleculeSet(ours), MoleculeSet(theirs), resamples=0).value
    middle = time.perf_counter(), time.process_time()
    slow = nspdk_pairwise.mmd(*([dictionaries(text) for text in part] for part in (ours, theirs)))
    end = time.perf_counter(), time.process_time()
    wall, cpu = ((end[i] - middle[i]) / (middle[i] - start[i]) for i in range(2))
    return {
        "dataset": dataset,
        "molecules": [count, count],
        "value": fast,
        "pairwise_value": slow,
        "seconds": middle[0] - start[0],
        "pairwise_seconds": end[0] - middle[0],
        "ratio": wall,
        "ratio_of_processor_time": cpu,
    }


def dictionaries(text: str) -> nspdk_pairwise.Labelled:
    graph = LabelledGraph.of_molecule(Chem.MolFromSmiles(text))
    edges = {(int(i), int(j)): int(b) for (i, j), b in zip(graph.edges, graph.bonds, strict=True)}
    return graph.nodes.tolist(), edges


def full(dataset: str, count: int) -> dict:
    """Everything that `isostep evaluate` prints, intervals included."""
    molecules = sample(dataset, "train", count)
    start = time.perf_counter(), time.process_time()
    report = evaluate(molecules, dataset)
    return {
        "dataset": dataset,
        "molecules": count,
        "resamples": report.resamples,
        "seconds": time.perf_counter() - start[0],
        "processor_seconds": time.process_time() - start[1],
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "values": {key: value.value for key, value in report.values.items()},
    }


def chemnet(dataset: str, count: int) -> dict:
    """Both sides start from SMILES; one batch of ours and of the published network before, to warm up."""
    import fcd_torch.utils as peer
    import torch

    folder = Path(peer.__file__).parent
    model = peer.load_imported_model(torch.load(next(folder.glob("ChemNet_*.pt")), weights_only=True)).eval()

    def published(smiles: list[str]) -> np.ndarray:
        parts = [
            np.stack([peer.get_one_hot(text, 350) for text in smiles[i : i + 128]]) / 35
            for i in range(0, len(smiles), 128)
        ]
        with torch.no_grad():
            return np.concatenate([model(torch.tensor(part).float().transpose(1, 2)).numpy() for part in parts])

    molecules, found = sample(dataset, "train", count), {}
    for name, function in {"ours": activations, "published": published}.items():
        function(molecules[:64])
        start = time.process_time()
        found[name] = function(molecules)
        found[name + "_seconds"] = time.process_time() - start
    return {
        "dataset": dataset,
        "molecules": count,
        "processor_seconds": found["ours_seconds"],
        "published_processor_seconds": found["published_seconds"],
        "ratio": found["published_seconds"] / found["ours_seconds"],
        "apart": float(np.abs(found["ours"] - found["published"]).max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="time every metric instead of NSPDK alone")
    parser.add_argument("--chemnet", action="store_true", help="time FCD's network against fcd_torch")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--dataset", default="qm9")
    parser.add_argument("--count", type=int, help="molecules; 1000 for NSPDK, 10,000 for --full, 500 for --chemnet")
    options = parser.parse_args()
    run, count = (full, 10_000) if options.full else (chemnet, 500) if options.chemnet else (nspdk, 1000)
    result = run(options.dataset, options.count or count)
    show(result, options.json)


if __name__ == "__main__":
    main()
