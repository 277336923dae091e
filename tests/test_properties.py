"""Whatever the sizes, masks, schedule and solver: every state on the way is symmetric, hollow and masked."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isostep.control import Dvs, Grid, cosine, gdss, karras, power, uniform
from isostep.loop import integrate
from isostep.noise import PREDICTOR, BrownianTree, PhiloxNoise
from isostep.process import VE, VP, Bridge, SubVP
from isostep.solution import Status
from isostep.solver import S4, Corrected, Euler, Exponential, Heun, Langevin, ReverseDiffusion
from isostep.state import GraphState
from tests.problems import chatter, draw, noisy_graphs

QUICK = settings(max_examples=25, deadline=None, derandomize=True)

norms = st.sampled_from(["batch", "graph"])
correctors = st.builds(Langevin, snr=st.floats(0.01, 0.3), scale=st.floats(0.0, 1.0), norms=norms)
bridges = st.builds(Bridge, sigma_0=st.floats(0.1, 1.0), sigma_1=st.floats(0.1, 1.0), drift_coeff=st.floats(-4.0, 4.0))
drift_solvers = st.one_of(
    st.just(Euler()),
    st.builds(Heun, st.sampled_from(["mean", "noisy"])),
    st.builds(Exponential, st.sampled_from([1, 2])),
)
pairs = st.one_of(
    st.tuples(st.one_of(bridges, st.sampled_from([VP(), VE(), SubVP()])), drift_solvers),
    st.tuples(st.sampled_from([VP(), VE(), SubVP()]), st.just(ReverseDiffusion())),
    st.tuples(st.sampled_from([VP(), VE()]), st.builds(S4, correctors)),
    st.tuples(st.sampled_from([VP(), VE(), SubVP()]), st.builds(Corrected, drift_solvers, correctors)),
)
ranges = st.sampled_from([((0.0, 1.0),), ((0.5, 1.0),), ((0.0, 0.2), (0.6, 0.9))])
controllers = st.one_of(
    st.builds(uniform, st.integers(1, 9)),
    st.builds(cosine, st.integers(1, 9)),
    st.builds(gdss, st.integers(2, 9)),
    st.builds(power, st.integers(1, 9), st.floats(0.5, 3.0)),
    st.builds(karras, st.integers(1, 9), st.floats(1.0, 7.0)),
    st.lists(st.floats(0.01, 0.99), unique=True, max_size=6).map(lambda t: Grid((0.0, *sorted(t), 1.0))),
    st.builds(
        Dvs,
        kappa=st.floats(0.1, 100.0),
        gamma=st.floats(0.0, 1.0),
        alpha=st.floats(0.1, 1.0),
        beta=st.floats(0.1, 1.0),
        dt_base=st.floats(0.05, 0.3),
        active=ranges,
        ema_start=st.sampled_from(["zero", "first"]),
        reduction=norms,
        normalize=st.sampled_from(["none", "entries"]),
        eps_bound=st.sampled_from([1e-6, 2e-3]),
    ),
)
sizes = st.lists(st.integers(1, 6), min_size=1, max_size=4)


def assert_graphs(state: GraphState, values: dict[str, torch.Tensor] | None = None) -> None:
    a, x = (values or state.components)["A"], (values or state.components)["X"]
    assert torch.equal(a, a.transpose(1, 2))
    assert not a[~state.masks.pairs].any()
    assert not x[~state.mask].any()


@QUICK
@given(pairs, controllers, sizes, st.integers(0, 3), st.integers(0, 2**64 - 1))
def test_every_step_gives_graphs(pair, controller, sizes, padding, seed):
    process, solver = pair
    state = noisy_graphs(sizes, nodes=max(sizes) + padding)
    steps = []

    def watch(info):
        steps.append(info)
        assert_graphs(info.state)
        assert_graphs(info.mean)
        assert (info.t1 > info.t0)[info.running].all()

    solution = integrate(chatter(process), state, controller, solver, PhiloxNoise(seed), hooks=(watch,))
    assert set(solution.status.tolist()) <= {Status.DONE, Status.NON_FINITE}
    done = solution.status == Status.DONE
    assert_graphs(solution.state)
    assert solution.state["A"].isfinite().all()
    # A finished graph is at the end of its schedule, and its calls are its steps times the solver's price.
    slack = controller.eps_bound if isinstance(controller, Dvs) else 0.0
    assert (solution.t[done] >= process.t_end - slack).all()
    assert (solution.calls[done] == solution.steps[done] * solver.calls_per_step).all()
    assert len(steps) * solver.calls_per_step == solution.batch_calls


@QUICK
@given(sizes, st.integers(0, 3), st.integers(0, 2**64 - 1), st.integers(0, 2**40), st.integers(0, 2**31))
def test_noise_gives_graphs_and_depends_on_nothing_but_its_address(sizes, padding, seed, first, step):
    state = noisy_graphs(sizes, nodes=max(sizes) + padding)
    for noise in (PhiloxNoise(seed), BrownianTree(seed, depth=4)):
        z = noise.normal(state, draw(len(sizes), step, first, 0.25, 0.75), PREDICTOR)
        assert_graphs(state, z)
        last = len(sizes) - 1
        alone = noise.normal(state.take(slice(last, None)), draw(1, step, first + last, 0.25, 0.75), PREDICTOR)
        for name in ("X", "A"):
            torch.testing.assert_close(alone[name][0], z[name][last], rtol=0, atol=1e-6)


@QUICK
@given(sizes, st.integers(0, 4), st.integers(0, 100))
def test_padding_joining_and_picking_are_inverse(sizes, padding, seed):
    state = noisy_graphs(sizes, seed=seed)
    wide = state.pad(state.nodes + padding)
    assert_graphs(wide)
    parts = [state.take(slice(i, i + 1)).pad(max(size, 1)) for i, size in enumerate(sizes)]
    joined = GraphState.cat(parts)
    for name in ("X", "A"):
        assert torch.equal(joined.pad(state.nodes)[name], state[name])
        assert torch.equal(wide.pad(state.nodes)[name], state[name])
    for name in ("X", "A"):
        assert torch.equal(wide.free_entries(name), state.free_entries(name))
