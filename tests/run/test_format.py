"""What a run folder may hold, and how a plan cuts its indices."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isostep.item import KINDS, Item
from isostep.run.format import RunPlan
from isostep.settings.schema import SamplerSettings

PLAN = {"schedule": "uniform", "steps": 3, "batch_size": 4, "shard_size": 8}


def plan_of(**fields) -> RunPlan:
    common = {"model": "m", "card": {}, "fingerprint": "0" * 64, "kind": "graph", "asked": {}, "seed": 0}
    return RunPlan(settings=SamplerSettings(), **{**common, **fields})


@given(st.integers(0, 100), st.integers(1, 200), st.integers(1, 9), st.integers(1, 5))
@settings(max_examples=200, deadline=None)
def test_shards_cover_the_indices_once_in_whole_batches(start, n, batch, times):
    plan = plan_of(start=start, n=n, batch_size=batch, shard_size=batch * times)
    tasks = [plan.task(k) for k in range(plan.count)]
    assert [i for task in tasks for i in range(task.start, task.start + task.n)] == list(range(start, start + n))
    assert all(task.start % batch == 0 for task in tasks[1:])


def test_a_plan_names_a_known_kind_and_a_new_one_is_one_class():
    fields = {"start": 0, "n": 1, "batch_size": 1, "shard_size": 1}
    with pytest.raises(ValueError, match="unknown kind of item 'ring'"):
        plan_of(**fields, kind="ring")

    class Ring(Item):
        kind, file = "ring", "rings.txt"

    assert plan_of(**fields, kind="ring").item is Ring
    assert plan_of(**fields, kind="ring").file(3) == "shards/000003.txt.gz"
    del KINDS["ring"]
