"""What a second thread of torch gives to a network call.

    python benchmarks/threads.py [--json] [--cases gdss-qm9,...]

`path` is the CPU time of the main thread, that is of all that cannot run beside something else; `all` that of both
threads. Waiting threads sleep (OMP_WAIT_POLICY=passive), so that both hold on a busy machine, where wall-clock time
says little: the speedup cannot be more than path with one thread / path with two. Least of several runs each.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ["OMP_WAIT_POLICY"] = "passive"

import torch

import networks  # sets one thread for all libraries; torch's own number is set below
from isostep.network.fast import FastSettings
from output import show

CASES = "gdss-qm9,gdss-zinc250k,grum-qm9,grum-planar"


def least(work: Callable[[], Any], repeats: int = 6) -> tuple[float, float]:
    """(main thread, all threads) in CPU seconds."""
    found = []
    for _ in range(repeats):
        start = time.thread_time(), time.process_time()
        work()
        found.append((time.thread_time() - start[0], time.process_time() - start[1]))
    return min(path for path, _ in found), min(total for _, total in found)


def measure(case: networks.Case, backend: str) -> dict[str, Any]:
    network, batch = case.network(), case.batch()
    fast = case.family.fast_network(network, FastSettings(backend))
    row: dict[str, Any] = {"name": f"{case.name} {backend}"}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        fast(*batch)
        row[f"path_{threads}"], row[f"all_{threads}"] = least(lambda: fast(*batch))
    return {**row, "speedup": row["path_1"] / row["path_2"], "work": row["all_2"] / row["all_1"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cases", default=CASES)
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    chosen = [case for case in networks.CASES if case.name in options.cases.split(",")]
    rows = [measure(case, backend) for case in chosen for backend in networks.backends()]
    show(rows, options.json)


if __name__ == "__main__":
    main()
