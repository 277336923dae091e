"""A million graphs: python examples/tutorials/million.py 1000000

Runs are cut into shards, survive crashes, and give the same graphs whatever the number of workers. The same as
`isostep sample rings-and-stars -n 1000000 --schedule cosine --solver exponential-2 --steps 10 --clock graph --seed 7
--workers 2 --out runs/million`.
"""

import sys
from pathlib import Path

import isostep

SETTINGS = {"schedule": "cosine", "solver": "exponential-2", "steps": 10, "clock": "graph", "seed": 7}


def main(n: int = 2000, out: str = "runs/million") -> None:
    summary = isostep.sample_run("rings-and-stars", n, out, workers=2, **SETTINGS)
    print({key: summary[key] for key in ("graphs", "done", "calls_mean", "seconds")})

    again = isostep.sample_run("rings-and-stars", n, out, workers=1, **SETTINGS)  # finished: nothing is computed again
    print("the same summary:", again["graphs"] == summary["graphs"])

    one = isostep.sample("rings-and-stars", 1, start=n - 1, **SETTINGS)  # the last graph, alone, anywhere
    print("the last graph:", one.lines()[0])
    print(sorted(path.name for path in Path(out).iterdir()))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
