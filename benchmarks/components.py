"""Which component of a graph moves when, and which is settled when, along the generative time t.

python benchmarks/components.py MODEL [--count 64] [--steps 200] [--solver euler] [--plot FILE.svg]

rate       j_c: information rate of the path, its drift part (docs/theory.md), from a pilot with equal steps
settled    1 - |D_c(t) - G_c|^2 / |D_c(0) - G_c|^2, D the clean graph that the model predicts at t, G the result
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from isostep import load_model, sample
from isostep.geometry import squared_norm
from isostep.loop import StepInfo
from isostep.model.model import Model
from isostep.reporting.figures import Curve, Curves
from isostep.reporting.plots import draw, save
from isostep.sampling.calibrate import PilotPlan, measure_pilot
from isostep.settings.resolve import resolve
from isostep.study.film import predicted

TIMES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
SEED = 77


def settled(model: Model, count: int, steps: int, solver: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Times, and by component the share of the way from the first prediction to the result."""
    times, seen = [], []

    def note(info: StepInfo) -> None:
        if float(info.t1[0]) < 1 - 1e-9:
            times.append(float(info.t1[0]))
            seen.append(info.state)

    result = sample(
        model, count, schedule="uniform", solver=solver, steps=steps, seed=SEED, batch_size=count, clock="batch",
        hooks=(note,),
    )  # fmt: skip
    gaps: dict[str, list[float]] = {name: [] for name in result.tensors.components}
    for t, state in zip(times, seen, strict=True):
        clean = predicted(model, state, torch.full((count,), t, dtype=torch.float64))
        for name, values in gaps.items():
            values.append(float(squared_norm(clean[name] - result.tensors[name]).mean()))
    return np.array(times), {name: 1 - np.array(values) / values[0] for name, values in gaps.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--solver", default="euler")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    model = load_model(options.model)
    settings = resolve(model.info.sampler, schedule="uniform", solver=options.solver, steps=options.steps)
    pilot = measure_pilot(model, settings, PilotPlan(options.count, options.steps))
    times, shares = settled(model, options.count, options.steps, options.solver)

    print(
        "| t | "
        + " | ".join(f"rate of {c}" for c in pilot.rate)
        + " | "
        + " | ".join(f"{c} settled" for c in shares)
        + " |"
    )
    print("|---|" + "---:|" * (len(pilot.rate) + len(shares)))
    for t in TIMES:
        rates = (f"{np.interp(t, pilot.t, rate):.4g}" for rate in pilot.rate.values())
        known = (f"{np.interp(t, times, share):.2f}" for share in shares.values())
        print(f"| {t} | " + " | ".join([*rates, *known]) + " |")
    for name, share in shares.items():
        print(f"{name}: half of it is settled at t = {times[np.argmax(share >= 0.5)]:.2f}")

    if options.plot:
        along = "t (0 noise, 1 data)"
        rates = [Curve(k, name, pilot.t, rate) for k, (name, rate) in enumerate(pilot.rate.items())]
        known = [Curve(k, name, tuple(times), tuple(share)) for k, (name, share) in enumerate(shares.items())]
        figure = draw([
            Curves("information rate of the path", tuple(rates), along, log_y=True),
            Curves("share that is settled", tuple(known), along),
        ])  # fmt: skip
        save(figure, options.plot.with_suffix(""), ("svg",))


if __name__ == "__main__":
    main()
