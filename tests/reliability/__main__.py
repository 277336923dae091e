"""Kill drivers and workers of sampling runs, and compare the graphs: `python -m tests.reliability --rounds 20`."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from isostep.run.writer import JOINED
from tests.reliability.driving import GRAPHS, content, drive, kill_rounds

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        began = time.time()
        drive(f"{place}/calm", 1, JOINED)
        result = kill_rounds(Path(place), options.rounds, options.seed, content(Path(place) / "calm"))
        print(json.dumps({**result, "graphs_per_run": GRAPHS, "seconds": round(time.time() - began)}))
