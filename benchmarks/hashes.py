"""Hashes of sampled graphs: a change that should move no graph is run before and after it.

    python benchmarks/hashes.py --write before.json         # in a checkout of the old commit
    python benchmarks/hashes.py --against before.json       # in the new one, on the same machine

Every embedded and analytic model, with several schedules, solvers, clocks, correctors and seeds. One hash is of the
denoised tensors, bit by bit; the other of the decoded graphs, which another machine's rounding leaves mostly alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import isostep
from isostep.noise import BrownianTree

SCORE, BRIDGE = ("gdss-community-small",), ("grum-community-small", "grum-qm9-small", "rings-and-stars")
LARGE = ("grum-planar-small", "grum-sbm-small")  # fewer graphs and cases: their networks are slow

PLAIN: list[dict[str, Any]] = [
    {"schedule": "uniform", "solver": "euler"},
    {"schedule": "uniform", "solver": "euler", "noise": "path"},
    {"schedule": "quadratic", "solver": "heun", "seed": 7},
    {"schedule": "cosine", "solver": "heun-noisy", "start": 3},
    {"schedule": "cosine", "solver": "exponential"},
    {"schedule": "karras", "solver": "exponential-2", "solver_options": {"eta": 0.5}},
    {"schedule": "power", "solver": "euler", "seed": 3},
    {"schedule": "error"},
    {"schedule": "dvs", "steps": 20, "schedule_options": {"kappa": 1.0}},
    {"schedule": "dvs", "steps": 20, "schedule_options": {"kappa": 1.0}, "clock": "graph", "solver": "heun"},
    {"calls": 10, "schedule": "uniform", "solver": "heun"},
    {},
]
TINY_ONLY: list[dict[str, Any]] = [{"schedule": "arclength", "solver": "euler"}]  # a pilot takes its time
SCORE_ONLY: list[dict[str, Any]] = [
    {"schedule": "gdss"},
    {"schedule": "uniform", "solver": "reverse", "corrector": "langevin"},
    {"schedule": "uniform", "solver": "reverse", "corrector": "langevin", "clock": "batch"},
    {"schedule": "uniform", "solver": "s4"},
    {"schedule": "uniform", "solver": "s4", "clock": "batch"},
    {"schedule": "cosine", "solver": "flow-euler"},
    {"schedule": "cosine", "solver": "flow-heun"},
]


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    for model in (*SCORE, *BRIDGE, *LARGE):
        more = SCORE_ONLY if model in SCORE else TINY_ONLY if model == "rings-and-stars" else []
        for choice in PLAIN + more:
            if model not in LARGE:
                yield model, {"n": 6, "batch_size": 4, "steps": 12, **choice}
            elif choice.get("schedule") != "error":
                yield model, {"n": 2, "steps": 6, **choice}


def hashes(model: str, choice: dict[str, Any]) -> tuple[str, str]:
    if "calls" in choice:
        choice = {name: value for name, value in choice.items() if name != "steps"}
    if choice.get("noise") == "path":
        choice = choice | {"noise": BrownianTree(choice.get("seed", 0))}
    result = isostep.sample(model, **choice)
    exact = hashlib.sha256()
    for name, value in sorted(result.tensors.components.items()):
        exact.update(name.encode() + value.contiguous().numpy().tobytes())
    graphs = [sorted(map(sorted, graph.edges)) for graph in result.to_networkx()]
    smiles = result.smiles if hasattr(result.items[0], "smiles") else []
    decoded = hashlib.sha256(repr((graphs, smiles)).encode())
    return exact.hexdigest()[:16], decoded.hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="file for the hashes")
    parser.add_argument("--against", type=Path, help="file of earlier hashes")
    args = parser.parse_args()
    before = json.loads(args.against.read_text()) if args.against else {}
    found, moved = {}, {"bits": 0, "graphs": 0, "absent": 0}
    for model, choice in cases():
        key = f"{model} {json.dumps(choice)}"
        found[key] = exact, decoded = hashes(model, choice)
        old = before.get(key)
        verdict = ""
        if args.against:
            verdict = "absent" if old is None else "graphs" if old[1] != decoded else "bits" if old[0] != exact else ""
            moved[verdict] = moved.get(verdict, 0) + 1
        print(exact, decoded, f"[{verdict} moved] {key}" if verdict else key, flush=True)
    if args.write:
        args.write.write_text(json.dumps(found, indent=1))
    if args.against:
        print(f"{len(found)} cases: {', '.join(f'{count} {name} moved' for name, count in moved.items() if name)}")
        raise SystemExit(moved["graphs"] + moved["bits"] > 0)


if __name__ == "__main__":
    main()
