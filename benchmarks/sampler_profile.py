"""Where a sampling run spends its CPU time, whether memory grows, and what 10,000 QM9 molecules would take.

    python benchmarks/sampler_profile.py [--json] [--graphs 1000] [--steps 30]

GDSS in its released QM9 shape with random weights: reverse diffusion with a Langevin corrector on a uniform grid (two
network calls a step, as released), and the same with DVS steps. One thread. The whole run is projected from the
measured steps: (10,000 / graphs) * (1000 / steps) times as long.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import sys
import time
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from benchmarks.networks import CASES

from isostep.model.info import ModelInfo, Provenance
from isostep.model.model import Model
from isostep.model.presets import find_preset
from isostep.noise import PhiloxNoise
from isostep.sampler import SamplerSettings
from isostep.sampling.loop import StepInfo, integrate

MOLECULES, STEPS = 10_000, 1000
VE = {"type": "VE", "sigma_min": 0.1, "sigma_max": 1.0}


def model() -> Model:
    case, preset = CASES[0], find_preset("gdss-qm9")
    info = ModelInfo(
        name="qm9-random",
        family="gdss",
        dataset="qm9",
        network=case.params,
        process={"X": VE, "A": VE},
        max_nodes=case.nodes,
        features=case.features,
        node_counts=preset.node_counts,
        atoms=preset.atoms,
        scale=3.0,
        sampler=preset.sampler,
        provenance=Provenance(source="random weights", licence="none"),
    )
    return Model(info, case.network())


def memory_mb(peak: bool = False) -> float:
    """Resident memory of this process, now or at its peak."""
    field = "VmHWM" if peak else "VmRSS"
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def profile(settings: SamplerSettings, graphs: int, steps: int) -> dict[str, Any]:
    """CPU seconds by part, calls, and memory after a third of the steps and at the end."""
    chosen, index = model(), torch.arange(graphs)
    run(chosen, settings, index, 2)  # compiled helpers and caches
    memory: list[float] = []
    profiler = cProfile.Profile(time.process_time)
    start = time.process_time()
    profiler.enable()
    done = run(chosen, settings, index, steps, lambda _: memory.append(memory_mb()))
    profiler.disable()
    total = time.process_time() - start
    parts = {name: cumulative(profiler, *place) / total for name, place in PARTS.items()}
    return {
        "name": f"{settings.schedule} {settings.solver} {settings.corrector}",
        "graphs": graphs,
        "steps": len(memory),
        "network_calls": done,
        "cpu_seconds": total,
        **{f"{name}_share": share for name, share in parts.items()},
        "rest_share": 1 - sum(parts.values()),
        "memory_growth_mb": memory[-1] - memory[len(memory) // 3],
        "peak_memory_mb": memory_mb(peak=True),
        "hours_projected": total * MOLECULES / graphs * STEPS / len(memory) / 3600,
    }


PARTS = {
    "network": ("fast.py", "__call__"),
    "noise": ("noise.py", "normal"),
    "controller": ("control", "propose"),
}


def cumulative(profiler: cProfile.Profile, file: str, function: str) -> float:
    stats: Any = pstats.Stats(profiler)
    rows = stats.stats.items()
    return sum(row[3] for (path, _, name), row in rows if name == function and file in path)


def run(chosen: Model, settings: SamplerSettings, index: torch.Tensor, steps: int, hook: Any = None) -> int:
    """Integrate at most `steps` steps; returns the calls of the batch."""

    def each(info: StepInfo) -> None:
        if hook:
            hook(info)

    solution = integrate(
        chosen, chosen.prior(index, 0), settings.controller(), settings.make_solver(), PhiloxNoise(0), index,
        max_steps=steps, hooks=(each,),
    )  # fmt: skip
    return solution.batch_calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    torch.set_num_threads(1)
    released = SamplerSettings(solver="reverse", corrector="langevin", snr=0.2, scale=0.7, steps=STEPS, clock="batch")
    dvs = find_preset("gdss-qm9").sampler.dvs.options("reverse")
    adaptive = released.model_copy(update={"schedule": "dvs", "schedule_options": dvs})
    rows = [profile(settings, options.graphs, options.steps) for settings in (released, adaptive)]
    if options.json:
        print(json.dumps({"rows": rows}))
        return
    for row in rows:
        print("  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()))


if __name__ == "__main__":
    main()
