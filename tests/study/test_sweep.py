from __future__ import annotations

import pytest

from isostep.base.errors import InputError
from isostep.study.sweep import parse_param, sweep_arms


def test_ranges_lists_and_json_values():
    assert parse_param("schedule.gamma=0.1:0.35:6").values == (0.1, 0.15, 0.2, 0.25, 0.3, 0.35)
    assert parse_param("steps=100,200").values == (100, 200)
    assert parse_param("solver=euler,heun").values == ("euler", "heun")
    assert parse_param("schedule.active=[[0,1]];[[.5,1]]").values == ([[0, 1]], [[0.5, 1]])
    assert parse_param("schedule.x=-.5,1e-3,true").values == (-0.5, 0.001, True)
    assert parse_param("schedule.file=a.5,.5x,./.7").values == ("a.5", ".5x", "./.7")
    assert parse_param('schedule.file="a/.5"').values == ("a/.5",)
    with pytest.raises(InputError, match="is no value"):
        parse_param("steps=" + "9" * 5000)


@pytest.mark.parametrize("bad", ["gamma", "nothing=1", "schedule.=1", "schedule.gamma=1:2:x", "steps=", "steps=1:2:1"])
def test_bad_parameters_are_told(bad):
    with pytest.raises(InputError):
        parse_param(bad)


@pytest.mark.parametrize("values", [",", ";", " "])
def test_a_sweep_over_nothing_is_refused(values):
    with pytest.raises(InputError, match=r"--param schedule\.gamma has no value"):
        sweep_arms([parse_param(f"schedule.gamma={values}")], "dvs", "uniform")


def test_arms_are_the_baseline_and_every_combination():
    params = [parse_param("schedule.gamma=.1,.2"), parse_param("schedule.kappa=1,5"), parse_param("steps=10,20")]
    arms = sweep_arms(params, "dvs", "uniform", solver=None, clock="batch")
    assert len(arms) == 9
    assert arms[0].chosen == {"schedule": "uniform", "clock": "batch"}
    last = arms[-1].chosen
    assert last["schedule_options"] == {"gamma": 0.2, "kappa": 5}
    assert last["steps"] == 20
    assert "solver" not in last
    assert len({arm.name for arm in arms}) == 9
