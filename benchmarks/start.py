"""CPU seconds of a short command from start to exit, beside `import torch` alone.

    python benchmarks/start.py [--first] [--json]     --first: also with nothing compiled yet

The least of three runs each; a child's time, its exit included.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile

from output import show

COMMAND = ["-m", "isostep", "sample", "grum-community-small", "-n", "16", "--calls", "20", "--json"]


def seconds(arguments: list[str], **environment: str) -> float:
    """CPU seconds of a Python with these arguments."""

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = spent()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env={**os.environ, **environment})
    return spent() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", action="store_true", help="also with an empty cache of Numba")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    seconds(COMMAND)  # warm
    result: dict[str, str | float] = {"command": " ".join(["isostep", *COMMAND[2:]])}
    result["seconds"] = min(seconds(COMMAND) for _ in range(3))
    result["import_torch"] = min(seconds(["-c", "import torch"]) for _ in range(3))
    if options.first:
        with tempfile.TemporaryDirectory() as folder:
            result["first_start"] = seconds(COMMAND, NUMBA_CACHE_DIR=folder)
    show(result, options.json)


if __name__ == "__main__":
    main()
