"""A run folder: `graphs.jsonl` or `molecules.smi`, `run.json` (everything needed to repeat it), and `trace.json`."""

from __future__ import annotations

import json
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from isostep.base.files import replacing, write_json, write_text
from isostep.item.graph import write_graphs
from isostep.sampling.run import SampleResult

RUN, GRAPHS, MOLECULES, TRACE, SDF = "run.json", "graphs.jsonl", "molecules.smi", "trace.json", "molecules.sdf"


def write_run(folder: str | Path, result: SampleResult, batch_size: int, model_name: str, sdf: bool = False) -> None:
    """Write the run; `run.json` comes last, so a folder that has it is complete."""
    folder = Path(folder)
    if result.model.info.kind == "graph":
        write_graphs(folder / GRAPHS, result.graphs)
    else:
        rows = zip(result.solution.index.tolist(), result.molecules, strict=True)
        write_text(folder / MOLECULES, "".join(f"{m.smiles}\t{i}\t{int(m.valid)}\n" for i, m in rows))
        if sdf:
            _write_sdf(folder / SDF, result)
    if result.solution.trace is not None:
        write_json(folder / TRACE, result.solution.trace.to_dict(), indent=None)
    write_json(folder / RUN, run_record(result, batch_size, model_name))


def run_record(result: SampleResult, batch_size: int, model_name: str) -> dict[str, Any]:
    info = result.model.info
    return {
        "format": 1,
        "model": model_name,
        "card": {"name": info.name, "sha256": info.sha256, "weights": info.weights, "dataset": info.dataset},
        "kind": info.kind,
        "settings": json.loads(result.settings.model_dump_json()),
        "seed": result.seed,
        "start": int(result.solution.index[0]),
        "n": len(result),
        "batch_size": batch_size,
        "device": str(result.model.device),
        "summary": result.summary(),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """What the numbers depend on."""
    packages = ("isostep", "torch", "numpy", "rdkit")
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in packages}}


def _write_sdf(path: Path, result: SampleResult) -> None:
    from rdkit import Chem

    with replacing(path) as temporary:
        writer = Chem.SDWriter(str(temporary))
        for index, mol in zip(result.solution.index.tolist(), result.to_rdkit(), strict=True):
            if mol is not None:
                mol.SetProp("_Name", str(index))
                writer.write(mol)
        writer.close()
