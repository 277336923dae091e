"""Where a sampling run spends its CPU time, whether memory grows, and what 10,000 QM9 molecules would take.

    python benchmarks/sampler_profile.py [--json] [--graphs 1000] [--steps 30]

GDSS in its released QM9 shape with random weights: reverse diffusion with a Langevin corrector on a uniform grid (two
network calls a step, as released), and the same with DVS steps. One thread. The whole run is projected from the
measured steps: (10,000 / graphs) * (1000 / steps) times as long.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from benchmarks.networks import CASES

from isostep.loop import integrate
from isostep.model.card import ModelInfo, Provenance
from isostep.model.model import Model
from isostep.model.presets import find_preset
from isostep.noise import PhiloxNoise
from isostep.process import ProcessSde
from isostep.settings.resolve import build
from isostep.settings.schema import SamplerSettings

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


class Timed:
    """An object whose method `name` adds its CPU time to `seconds`. (cProfile would charge Python code too much.)"""

    def __init__(self, inner: Any, name: str) -> None:
        self.inner, self.name, self.seconds = inner, name, 0.0

    def __getattr__(self, name: str) -> Any:
        return self.timed if name == self.name else getattr(self.inner, name)

    def timed(self, *arguments: Any) -> Any:
        start = time.process_time()
        result = getattr(self.inner, self.name)(*arguments)
        self.seconds += time.process_time() - start
        return result


def profile(settings: SamplerSettings, graphs: int, steps: int) -> dict[str, Any]:
    """CPU seconds by part, calls, and memory after a third of the steps and at the end."""
    chosen, index = model(), torch.arange(graphs)
    network = Timed(chosen, "_call")
    noise: Any = Timed(PhiloxNoise(0), "normal")
    controller: Any = Timed(build(settings).controller, "propose")
    sde, solver, memory = ProcessSde(network.timed, chosen.info.processes()), build(settings).solver, []
    prior = chosen.prior(index, 0)
    integrate(sde, prior, controller, solver, noise, index, max_steps=2)  # compiled helpers and caches
    parts = {"network": network, "noise": noise, "controller": controller}
    before = {name: part.seconds for name, part in parts.items()}
    start = time.process_time()
    done = integrate(
        sde, prior, controller, solver, noise, index, max_steps=steps, hooks=(lambda _: memory.append(memory_mb()),)
    )  # fmt: skip
    total = time.process_time() - start
    shares = {name: (part.seconds - before[name]) / total for name, part in parts.items()}
    return {
        "name": f"{settings.schedule} {settings.solver} {settings.corrector}",
        "graphs": graphs,
        "steps": len(memory),
        "network_calls": done.batch_calls,
        "cpu_seconds": total,
        **{f"{name}_share": share for name, share in shares.items()},
        "rest_share": 1 - sum(shares.values()),
        "memory_growth_mb": memory[-1] - memory[len(memory) // 3],
        "peak_memory_mb": memory_mb(peak=True),
        "hours_projected": total * MOLECULES / graphs * STEPS / len(memory) / 3600,
    }


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
