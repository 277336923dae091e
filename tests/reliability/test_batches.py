"""The same graph whatever the batch: every schedule, clock and noise that does not say it couples graphs."""

from __future__ import annotations

import pytest
import torch

from isostep import sample
from isostep.control.error import ErrorControl
from isostep.loop import integrate
from isostep.model.analytic import Exact, analytic_model
from isostep.model.lookup import load_model
from isostep.model.model import Model
from isostep.network.analytic import rings_and_stars
from isostep.noise import BrownianTree
from isostep.run.engine import sample_run
from isostep.run.inspect import verify
from isostep.sampling.run import SampleResult
from isostep.settings.resolve import build
from isostep.settings.schedules import SCHEDULES
from isostep.solver.heun import Heun
from tests.problems import chatter, noisy_graphs

TIMES = "".join(f"{i / 12}\n" for i in range(13))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("times")
    (folder / "times.txt").write_text(TIMES)
    return folder


def settings_of(schedule: str, clock: str, files, steps: int) -> dict:
    options = {"file": str(files / "times.txt")} if schedule == "times" else {}
    return {"schedule": schedule, "clock": clock, "steps": steps, "schedule_options": options}


def twice(model, n: int, sizes: tuple[int, int], **settings) -> tuple[SampleResult, SampleResult]:
    return tuple(sample(model, n, batch_size=size, seed=3, **settings) for size in sizes)  # type: ignore[return-value]


CASES = [(s, c, n) for s in SCHEDULES if s != "gdss" for c in ("graph", "batch") for n in ("step", "path")]


class Digits(Exact):
    """Last digits that depend on how many graphs are computed together, as those of every fast network do."""

    size = 3e-7

    def forward(self, x, a, mask, t):
        x, a = super().forward(x, a, mask, t)
        return x * (1 + self.size * len(x)), a * (1 - self.size * len(a))


class LargeDigits(Digits):
    """So large that a graph is the same in the same batch only."""

    size = 0.02


def model_of(network: type[Exact]) -> Model:
    info = analytic_model().info
    return Model(info, network(rings_and_stars(info.processes(), 8)))


@pytest.mark.parametrize(("schedule", "clock", "noise"), CASES)
def test_the_batch_does_not_matter(files, schedule, clock, noise):
    large, small = twice(model_of(Digits), 14, (14, 5), noise=noise, **settings_of(schedule, clock, files, 12))
    if build(large.settings).couples_graphs:
        assert clock == "batch"
        return
    assert large.solution.steps.tolist() == small.solution.steps.tolist()
    for name, x in large.tensors.components.items():
        assert 0 < (small.tensors[name] - x).abs().max() < 1e-4
    assert large.lines() == small.lines()


MODELS = ["grum-qm9-small", "gdss-community-small"]


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("schedule", "noise"), [(s, n) for s, c, n in CASES if c == "graph"])
def test_the_batch_does_not_matter_for_5000_graphs(files, model, schedule, noise):
    chosen = settings_of(schedule, "graph", files, 12)
    large, small = twice(load_model(model), 5000, (200, 48), noise=noise, **chosen)
    assert not build(large.settings).couples_graphs
    different = [i for i, (a, b) in enumerate(zip(large.lines(), small.lines(), strict=True)) if a != b]
    assert not different


def test_adaptive_times_on_a_path_are_cells_of_its_tree():
    tree = BrownianTree(7, depth=8)
    seen = []
    integrate(
        chatter(), noisy_graphs([3, 5]), ErrorControl(dt_first=0.03, dt_min=1e-4), Heun("noisy", tolerance=1e-3), tree,
        hooks=(lambda info: seen.append(info.t1.clone()),),
    )  # fmt: skip
    cells = torch.cat(seen) * 2**8
    assert len(seen) > 20
    assert torch.equal(cells, cells.round())


def test_a_tolerance_no_step_can_meet_still_ends():
    """A step of one cell cannot be shortened: it is kept."""
    strict = Heun("noisy", tolerance=1e-9)
    control = ErrorControl(dt_first=0.03, dt_min=1e-5)
    solution = integrate(chatter(), noisy_graphs([3]), control, strict, BrownianTree(7, depth=6), max_steps=500)
    assert solution.raise_failures().steps.tolist() == [64]


@pytest.mark.parametrize("schedule", ["dvs", "error"])
def test_graphs_on_own_clocks_are_verified_by_whole_shards(tmp_path, schedule):
    """Places are refilled as graphs finish, so who is computed together follows from the shard, not from the batch."""
    model = model_of(LargeDigits)
    chosen = {"schedule": schedule, "clock": "graph", "steps": 6, "batch_size": 3, "shard_size": 9}
    sample_run(model, 15, tmp_path, **chosen)
    verdict = verify(tmp_path, model, batches=2)
    assert verdict.ok
    assert verdict.regenerated > 2 * 3
