"""Reproduce a table of the paper: python examples/tutorials/reproduce.py

The same as `isostep reproduce T3 --quick --out results` and a look at what it wrote: the paper's values beside ours,
the constants of every arm, and what is not comparable. Without `--quick` the counts are the paper's.
"""

import json
import subprocess
import sys
from pathlib import Path


def main(target: str = "T3", out: str = "results") -> None:
    subprocess.run([sys.executable, "-m", "isostep", "reproduce", target, "--quick", "--out", out], check=True)
    record = json.loads((Path(out) / f"{target}.json").read_text())
    for part in record["parts"]:
        for arm in part["comparison"]["arms"]:
            print(
                part["model"]["name"],
                arm["name"],
                {name: metric.get("mean") for name, metric in arm["metrics"].items()},
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
