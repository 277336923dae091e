"""Speed of the molecule metrics.

    python benchmarks/molecule_metrics.py [--json]          NSPDK of 1000 against 1000 molecules, against all pairs
    python benchmarks/molecule_metrics.py --full [--json]   every metric of 10,000 molecules against QM9's test set

Molecules come from `isostep data`; both figures of a ratio are measured in the same run.
"""

from __future__ import annotations

import argparse
import json
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
from isostep.metric.molecules import MoleculeSet, canonical
from isostep.metric.nspdk import LabelledGraph, MoleculeNspdk


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="time every metric instead of NSPDK alone")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--dataset", default="qm9")
    parser.add_argument("--count", type=int, help="molecules; 1000 for NSPDK, 10,000 for --full")
    options = parser.parse_args()
    run, count = (full, 10_000) if options.full else (nspdk, 1000)
    result = run(options.dataset, options.count or count)
    if options.json:
        print(json.dumps(result, indent=2))
        return
    for key, value in result.items():
        print(f"{key:24} {value:.6g}" if isinstance(value, float) else f"{key:24} {value}")


if __name__ == "__main__":
    main()
