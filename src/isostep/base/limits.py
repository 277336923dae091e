"""The one budget for files that may come from anywhere: what is asked for is compared with it before memory is taken.

`ISOSTEP_LIMITS=4` makes every limit four times as large, for files that you trust.
"""

from __future__ import annotations

import os

from isostep.base.errors import InputError

VARIABLE = "ISOSTEP_LIMITS"

# What it bounds, by name; the table in docs/reliability.md says the same.
LIMITS = {
    "file_bytes": 4 * 2**30,  # of a released file or a data file
    "json_bytes": 64 * 2**20,  # of one JSON file
    "line_bytes": 32 * 2**20,  # of one line
    "pickle_bytes": 64 * 2**20,  # of the program inside a released file
    "pickle_instructions": 1_000_000,  # a released model of 500 tensors with optimizer state needs 100,000
    "values": 200_000,  # of a released file, written out as a tree
    "archive_entries": 20_000,  # of a zip file
    "unpacked_bytes": 512 * 2**20,  # of the arrays of a reference
    "growth": 250,  # bytes unpacked for each byte of a compressed text; the first megabyte is free
    "copies": 2,  # bytes of a released file's tensors for each byte of the file: weights may be tied
    "matrix_entries": 2**24,  # of a dense matrix of a graph's nodes: 4096 nodes
    "skipped_lines": 50_000,  # of one file of graphs or molecules
    "smiles_characters": 2_000,
}


def limit(name: str) -> int:
    """A limit, times ISOSTEP_LIMITS."""
    word = os.environ.get(VARIABLE, "1")
    try:
        factor = float(word)
    except ValueError:
        factor = 0.0
    if not 0 < factor <= 1e6:
        raise InputError(f"{VARIABLE} must be a number above 0 and up to a million, got {word[:60]!r}")
    return int(LIMITS[name] * factor)


def within(name: str, asked: float, what: str) -> None:
    """Refuse what asks for more than a limit; `what` begins the message, such as "its pickle has 7 bytes"."""
    if asked > (most := limit(name)):
        raise InputError(f"{what}, more than the {most:,} allowed; for a file you trust, set {VARIABLE}")
