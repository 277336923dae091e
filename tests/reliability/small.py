"""Runs of a few graphs that stay in shards, as large ones do."""

from __future__ import annotations

from isostep.model.analytic import analytic_model
from isostep.run import writer
from isostep.run.engine import sample_run
from isostep.run.reading import read_run

PLAN = {"schedule": "uniform", "steps": 3, "batch_size": 4, "shard_size": 8}


def run(folder, n=30, model=None, joined=0, **other):
    before, writer.JOINED = writer.JOINED, joined
    try:
        return sample_run(model or analytic_model(), n, folder, **{**PLAN, **other})
    finally:
        writer.JOINED = before


def lines(folder) -> list[tuple[int, str]]:
    return list(read_run(folder).lines())
