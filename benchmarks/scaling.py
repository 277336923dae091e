"""Throughput of 1 and 2 workers, predicted and real; memory of the driver from 10,000 to 200,000 graphs.

    python benchmarks/scaling.py throughput --model rings-and-stars -n 4096 --workers 1 2 --repeats 3
    python benchmarks/scaling.py memory --sizes 10000 200000
    python benchmarks/scaling.py simulate

Each prints one JSON object. `throughput` takes the rate between the first and the last finished shard, so that starting
up does not count, and alternates between worker counts, so that other users of the machine slow all of them alike.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np


def throughput(model: str, n: int, workers: list[int], repeats: int, steps: int, batch: int) -> dict:
    from isostep.model.lookup import load_model
    from isostep.run import writer
    from isostep.run.cost import estimate, measure_steps
    from isostep.run.engine import sample_run
    from isostep.run.reading import read_run
    from isostep.run.workers import cores
    from isostep.settings.resolve import resolve

    writer.JOINED = 0
    loaded = load_model(model)
    options = {"schedule": "uniform", "steps": steps, "batch_size": batch, "shard_size": batch}
    settings = resolve(loaded.info.sampler, schedule="uniform", steps=steps)
    rates: dict[int, list[float]] = {count: [] for count in workers}
    ratios: dict[int, list[float]] = {count: [] for count in workers}
    cpu: dict[int, list[float]] = {count: [] for count in workers}
    for repeat in range(repeats):
        for count in workers:
            predicted = estimate(measure_steps(loaded, settings, batch), n, count, batch).seconds
            with tempfile.TemporaryDirectory() as place:
                sample_run(loaded, n, place, workers=count, threads=1, seed=repeat, **options)
                made = read_run(place).shards.values()
            at = sorted(part.at for part in made)
            cpu[count].append(1000 * sum(part.cpu_seconds for part in made) / n)
            # The first `count` shards end together with the start-up; the rest is steady work.
            seconds = (at[-1] - at[count - 1]) * len(at) / (len(at) - count)
            rates[count].append(n / seconds)
            ratios[count].append(seconds / predicted)
    middle = {count: statistics.median(values) for count, values in rates.items()}
    first = workers[0]
    return {
        "model": model, "n": n, "batch": batch, "steps": steps, "cores": cores(), "load": os.getloadavg()[0],
        "graphs_per_second": {str(count): [round(rate, 2) for rate in values] for count, values in rates.items()},
        "speedup": {str(count): round(middle[count] / middle[first], 3) for count in workers},
        "cpu_seconds_per_1000": {str(count): [round(value, 2) for value in values] for count, values in cpu.items()},
        "real_over_predicted": {str(count): [round(r, 2) for r in values] for count, values in ratios.items()},
    }  # fmt: skip


MEMORY = """
import resource, sys, tempfile, torch
torch.set_num_threads(1)
from isostep.model.analytic import analytic_model
from isostep.run.engine import sample_run
if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        sample_run(analytic_model(), int(sys.argv[1]), place, workers=int(sys.argv[2]), schedule="uniform", steps=1,
                   batch_size=1000, shard_size=1000)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def memory(sizes: list[int], workers: int) -> dict:
    """Peak memory of the driver process, MB."""
    peaks, seconds = {}, {}
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(MEMORY)
        script.flush()
        for size in sizes:
            began = time.time()
            command = [sys.executable, script.name, str(size), str(workers)]
            peaks[str(size)] = round(int(subprocess.run(command, check=True, capture_output=True).stdout) / 1024, 1)
            seconds[str(size)] = round(time.time() - began, 1)
    return {"workers": workers, "peak_MB": peaks, "seconds": seconds}


def simulated() -> dict:
    """A million graphs in 977 shards of 100 s (deviation 10 s) on workers that fail: range and efficiency."""
    from isostep.run.cost import simulate

    random, rows = np.random.default_rng(0), []
    shards, mean = 977, 100.0
    for workers in (1, 8, 64, 512):
        for per_day in (0, 1, 24):
            ends = [simulate(mean, 10.0, shards, workers, per_day / 86400, 30.0, random) for _ in range(40)]
            rows.append(
                {
                    "workers": workers,
                    "failures_per_worker_day": per_day,
                    "formula_hours": round(-(-shards // workers) * mean / 3600, 3),
                    "simulated_hours": [round(float(np.quantile(ends, q)) / 3600, 3) for q in (0.05, 0.5, 0.95)],
                    "efficiency": round(shards * mean / workers / float(np.median(ends)), 3),
                }
            )
    return {"rows": rows}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["throughput", "memory", "simulate"])
    parser.add_argument("--model", default="rings-and-stars")
    parser.add_argument("-n", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 200_000])
    given = parser.parse_args()
    if given.what == "throughput":
        import torch

        torch.set_num_threads(1)
        result = throughput(given.model, given.n, given.workers, given.repeats, given.steps, given.batch)
    elif given.what == "memory":
        result = memory(given.sizes, given.workers[0])
    else:
        result = simulated()
    print(json.dumps(result))
