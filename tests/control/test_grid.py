"""Static grids: their formulas, to the last bit where it matters."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from isostep.base.errors import InputError
from isostep.control import Grid, Measured, cosine, gdss, karras, power, quadratic, uniform
from isostep.control.fisher import fisher
from isostep.control.grid import ranges
from tests.problems import seconds


def walk(controller, t_end: float, rows: int = 1) -> tuple[list[float], list[float]]:
    """Times and step lengths that a loop would see for the last of `rows` graphs."""
    t, step = torch.zeros(rows, dtype=torch.float64), torch.zeros(rows, dtype=torch.int64)
    memory = controller.start(t, 1, t_end)
    times, lengths = [0.0], []
    while not bool(controller.finished(memory, t, step).all()):
        assert int(controller.least_left(memory, t, step).min()) == controller.steps - int(step[-1])
        now = Measured(t, step, None, torch.ones(rows, dtype=torch.bool), torch.ones(rows, 1))
        t, dt, memory = controller.propose(memory, now)
        step = step + 1
        times.append(float(t[-1]))
        lengths.append(float(dt[-1]))
    return times, lengths


@pytest.mark.parametrize("t_end", [1.0, 1 - 1e-4])
@pytest.mark.parametrize(
    ("make", "formula"),
    [
        (uniform, lambda i, n: i / n),
        (quadratic, lambda i, n: 1 - (1 - i / n) ** 2),
        (lambda n: power(n, 3.5), lambda i, n: 1 - (1 - i / n) ** 3.5),
        (lambda n: power(n, p=1.5), lambda i, n: (i / n) ** 1.5),
        (lambda n: power(n, 2.5, p=0.5), lambda i, n: 1 - (1 - (i / n) ** 0.5) ** 2.5),
        (cosine, lambda i, n: math.sin(math.pi * i / (2 * n))),
        (lambda n: fisher(n, 0.0), lambda i, n: math.sin(math.pi * i / (2 * n)) ** 2),
        (lambda n: fisher(n, 0.5), lambda i, n: math.sin(math.pi * i / (2 * n))),
    ],
    ids=["uniform", "quadratic", "power", "noise", "both", "cosine", "fisher-0", "fisher-half"],
)
@pytest.mark.parametrize("steps", [1, 7, 1000])
def test_formulas(make, formula, steps, t_end):
    times, lengths = walk(make(steps), t_end)
    assert times == pytest.approx([t_end * formula(i, steps) for i in range(steps + 1)], rel=1e-13, abs=1e-15)
    assert times[-1] == t_end  # exactly, not by adding up
    assert lengths == pytest.approx([b - a for a, b in itertools.pairwise(times)])


def test_equal_steps_of_the_angle():
    """fisher(a): the chance of the true class, a + (1 - a) t, moves by the same angle in every step."""
    for a in (0.0, 0.1, 0.37, 0.9):
        angles = [math.asin(math.sqrt(min(1.0, a + (1 - a) * t))) for t in fisher(9, a).times]
        assert [y - x for x, y in itertools.pairwise(angles)] == pytest.approx([(angles[-1] - angles[0]) / 9] * 9)
    assert fisher(9, 1 - 1e-9).times == pytest.approx(quadratic(9).times, abs=1e-4)
    for a in (-0.1, 1.0, float("nan")):
        with pytest.raises(InputError, match="the chance of the true class"):
            fisher(5, a)


def test_adding_up_would_miss_the_end():
    """Why times come from i: a thousand steps of 0.001 do not give 1."""
    t = 0.0
    for _ in range(1000):
        t += 0.001
    assert t != 1.0
    assert walk(uniform(1000), 1.0)[0][-1] == 1.0


def test_karras_levels():
    """Five steps, rho 2, floor 0.01: sqrt(1 - t) = 1, 0.775, 0.55, 0.325, 0.1, then the last step to the end."""
    expected = [1 - level**2 for level in (1.0, 0.775, 0.55, 0.325, 0.1)]
    assert karras(5, rho=2.0, floor=0.01).times == pytest.approx((*expected, 1.0))
    assert karras(1).times == (0.0, 1.0)


def test_gdss_grid_keeps_its_own_step_length():
    """Four evaluations, evenly from s = 1 down to eps; each step is 1/4 long whatever the spacing."""
    times, lengths = walk(gdss(4, eps=1e-4), t_end=1 - 1e-4)
    assert times == pytest.approx([0, (1 - 1e-4) / 3, 2 * (1 - 1e-4) / 3, 1 - 1e-4, 1.0])
    assert lengths == [0.25] * 4


def test_explicit_times_and_rows():
    grid = Grid((0.0, 0.2, 0.9, 1.0))
    assert grid.steps == 3
    assert walk(grid, 0.5, rows=3)[0] == pytest.approx([0, 0.1, 0.45, 0.5])
    t = seconds(0.0, 0.0)
    memory = grid.start(t, 1, 1.0)
    now = Measured(t, torch.tensor([0, 2]), None, torch.ones(2, dtype=torch.bool), torch.ones(2, 1))
    assert grid.propose(memory, now).t1.tolist() == [0.2, 1.0]  # graphs at different places of one grid


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Grid((0.0,)), "at least two"),
        (lambda: Grid((0.0, math.nan, 1.0)), "finite"),
        (lambda: Grid((0.1, 1.0)), "from 0 to 1, got 0.1"),
        (lambda: Grid((0.0, 0.5)), "from 0 to 1"),
        (lambda: Grid((0.0, 0.5, 0.5, 1.0)), "increase strictly"),
        (lambda: Grid((0.0, 0.6, 0.5, 1.0)), "increase strictly"),
        (lambda: uniform(0), "whole number from 1"),
        (lambda: uniform(2.5), "whole number from 1"),
        (lambda: uniform(True), "whole number from 1"),
        (lambda: power(5, 0.0), "rho must be positive, got 0.0"),
        (lambda: power(5, math.inf), "rho must be positive"),
        (lambda: karras(5, floor=1.0), "floor of a Karras grid"),
        (lambda: gdss(1), "at least 2 steps"),
    ],
)
def test_wrong_grids_are_refused_in_one_line(make, words):
    with pytest.raises(InputError) as caught:
        make()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ranges_has_the_asked_steps_inside_and_outside():
    """GDSS on QM9 in the paper: base steps of 1/1000, a fifth of that on [0, .2] and [.95, 1]."""
    times = ranges(2000, active=((0.0, 0.2), (0.95, 1.0)), outside=750).times
    lengths = [b - a for a, b in itertools.pairwise(times)]
    inside = [length for t, length in zip(times, lengths, strict=False) if t < 0.1999 or t > 0.9499]
    assert len(lengths) == 2000
    assert len(inside) == 1250
    assert inside == pytest.approx([2e-4] * 1250)
    assert sorted(lengths)[1250:] == pytest.approx([1e-3] * 750)
    assert ranges(2000, active=[[0.0, 0.2], [0.95, 1.0]]).times == pytest.approx(times)  # a fifth by default
    # A step may lie across an edge: the number is kept all the same.
    assert len(ranges(7, active=((0.13, 0.61),), outside=2).times) == 8
    assert ranges(5, active=((0.0, 1.0),)) == uniform(5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"outside": 0}, "from 1 to 9, got 0"),
        ({"outside": 10}, "from 1 to 9, got 10"),
        ({"active": ()}, "inside [0, 1]"),
        ({"active": ((0.5, 0.4),)}, "inside [0, 1]"),
        ({"active": ((0.5, 0.9), (0.2, 0.3))}, "apart and in order"),
        ({"active": ((0.5, 1.2),)}, "inside [0, 1]"),
    ],
)
def test_wrong_ranges_are_refused(options, words):
    with pytest.raises(InputError) as caught:
        ranges(10, **options)
    assert words in str(caught.value)
