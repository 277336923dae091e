"""Films: the last state before each frame, what the model predicts from it, and nothing of the run changed."""

from __future__ import annotations

import pytest
import torch

from isostep.model.analytic import analytic_model
from isostep.sampling.run import sample
from isostep.study.film import FILMED, FRAMES, Camera, predicted

SETTINGS = {"schedule": "uniform", "steps": 10, "solver": "euler", "seed": 3}


@pytest.fixture(scope="module")
def filmed():
    camera = Camera()
    return sample(analytic_model(), 6, hooks=(camera,), **SETTINGS), camera


def test_the_run_is_the_same_without_a_camera(filmed):
    alone = sample(analytic_model(), 6, **SETTINGS)
    assert alone.lines() == filmed[0].lines()
    assert alone.batch_calls == filmed[0].batch_calls


def test_frames_hold_the_last_state_before_them(filmed):
    films = filmed[1].films(filmed[0])
    assert len(films) == FILMED
    for film in films:
        assert len(film.edges) == FRAMES + 1
        every = FRAMES // 10
        for k in range(FRAMES):  # a state is held until the next step ends
            assert film.edges[k] == film.edges[k - k % every]
    times = {frame: t for (graph, frame), (t, _) in filmed[1].seen.items() if graph == 0}
    assert times == pytest.approx({4 * k: k / 10 for k in range(1, 10)})


def test_the_first_frame_is_the_mean_graph_and_the_last_the_output(filmed):
    """From noise alone the exact model predicts the mixture's mean: half a ring and half a star."""
    result, camera = filmed
    for graph, film in zip(result.graphs, camera.films(result), strict=False):
        first, last = film.sketch(0), film.sketch(FRAMES)
        assert all(min(abs(weight - 0.5), abs(weight - 1.0)) < 0.05 for weight in first.weights)
        assert sum(weight < 0.6 for weight in first.weights) > 6
        assert {edge[:2] for edge in last.decided} == {tuple(edge) for edge in graph.edges.tolist()}
        assert min(last.weights[k] for k, edge in enumerate(last.edges) if edge[2]) > 0.5


def test_predictions_are_those_of_the_model(filmed):
    model = filmed[0].model
    prior = model.prior(torch.arange(2), 0)
    t = torch.tensor([0.0, 0.5], dtype=torch.float64)
    clean = predicted(model, prior, t)
    for row in range(2):
        alone = predicted(model, prior.take(slice(row, row + 1)), t[row : row + 1])
        torch.testing.assert_close(clean["A"][row], alone["A"][0])
        assert -0.1 < float(clean["A"][row].min()) < float(clean["A"][row].max()) < 1.1
