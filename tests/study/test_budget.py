"""Budgets of network calls in a study."""

from __future__ import annotations

from isostep.model.zoo import load_model
from isostep.sampler import resolve
from isostep.sampling.run import sample
from isostep.study.budget import with_budget


def test_a_schedule_that_is_measured_later_keeps_its_budget():
    model = load_model("rings-and-stars")
    settings = resolve(model.info.sampler, schedule="arclength", solver="exponential")
    settings, note = with_budget(model, settings, 12)
    assert note == "12 steps of 1 calls"
    assert sample(model, 3, settings=settings).solution.calls.tolist() == [12, 12, 12]
