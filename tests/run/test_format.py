"""What a run folder may hold: how a plan cuts its indices, and folders that earlier versions wrote."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isostep.base.errors import InputError
from isostep.item import KINDS, Item
from isostep.metric.items import gather
from isostep.model.analytic import analytic_model
from isostep.run import writer
from isostep.run.engine import sample_run
from isostep.run.export import export_items
from isostep.run.format import RunPlan
from isostep.run.inspect import status, verify
from isostep.run.reading import read_run
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


# --- folders of earlier versions -------------------------------------------------------------------------------------


def test_a_finished_folder_of_format_1_is_read_but_not_continued(tmp_path):
    """One file without sums, and a card instead of a fingerprint."""
    sample_run(analytic_model(), 20, tmp_path, **PLAN)
    lines = list(read_run(tmp_path).lines())
    record = json.loads((tmp_path / "run.json").read_text())
    for name in ("preset", "fingerprint", "asked", "shard_size", "noise", "trace", "joined"):
        del record[name]
    (tmp_path / "run.json").write_text(json.dumps({**record, "format": 1}))
    assert list(read_run(tmp_path).lines()) == lines
    assert status(tmp_path)["state"] == "complete"
    assert len(gather(tmp_path)) == export_items(tmp_path, tmp_path / "a.jsonl", "jsonl") == 20
    assert verify(tmp_path, analytic_model()).regenerated
    with pytest.raises(InputError, match="holds another run: its format is 1, not 2"):
        sample_run(analytic_model(), 20, tmp_path, **PLAN)
    (tmp_path / "graphs.jsonl").write_text("".join(line + "\n" for _, line in lines[1:]))
    with pytest.raises(InputError, match="19 lines, expected 20"):
        list(read_run(tmp_path).lines())


def test_the_manifest_of_an_early_run_of_molecules_is_read(tmp_path, monkeypatch):
    """Valid molecules were counted in a field of their own."""
    monkeypatch.setattr(writer, "JOINED", 0)
    sample_run(analytic_model(), 20, tmp_path, **PLAN)
    path = tmp_path / "shards.jsonl"
    old = []
    for line in path.read_text().splitlines():
        record = json.loads(line)
        assert record.pop("tally") == {}
        old.append(json.dumps({**record, "valid": 3}) + "\n")
    path.write_text("".join(old))
    run = read_run(tmp_path)
    assert run.unreadable == 0
    assert [shard.tally for shard in run.shards.values()] == [{"valid": 3}] * 3
