"""Graph states: what is checked, and padding, joining, picking."""

from __future__ import annotations

import pytest
import torch

from isostep.base.errors import InputError
from isostep.state import GraphState, cat_rows, expand, take_rows, where_rows


def pair_state() -> GraphState:
    """Two graphs, of 3 and 2 nodes, with all three kinds of component."""
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    x = torch.arange(1.0, 13.0).view(2, 3, 2) * mask[:, :, None]
    a = torch.tensor([[[0, 1, 2], [1, 0, 3], [2, 3, 0]], [[0, 4, 0], [4, 0, 0], [0, 0, 0]]]).float()
    return GraphState.of(mask, X=x, A=a, y=torch.ones(2, 5))


def test_kinds_follow_from_name_and_shape():
    mask = torch.ones(1, 2)
    state = GraphState.of(
        mask, X=torch.zeros(1, 2, 3), A=torch.zeros(1, 2, 2), bonds=torch.zeros(1, 2, 2, 4), y=torch.zeros(1, 3)
    )
    assert dict(state.kinds) == {"X": "node", "A": "edge", "bonds": "edge", "y": "graph"}
    given = GraphState.of(mask, {"P": "edge"}, P=torch.zeros(1, 2, 2))
    assert given.kinds["P"] == "edge"


def test_free_entries_count_an_edge_once_and_no_padding():
    state = pair_state()
    assert state.free_entries("X").tolist() == [6, 4]
    assert state.free_entries("A").tolist() == [3, 1]
    assert state.free_entries("y").tolist() == [5, 5]
    four = GraphState.of(torch.ones(1, 3), E=torch.zeros(1, 3, 3, 4))
    assert four.free_entries("E").tolist() == [12]


def test_projection_clears_padding_and_diagonal_even_of_nan():
    state = pair_state()
    a = state.project("A", torch.full((2, 3, 3), torch.nan))
    assert a.isnan().tolist() == state.masks.pairs.tolist()
    assert state.project("y", torch.ones(2, 5)).sum() == 10
    assert state.project("X", torch.ones(2, 3, 2)).dtype == torch.float32


def test_padding_and_cutting_back_changes_nothing():
    state = pair_state()
    wide = state.pad(5)
    assert wide["X"].shape == (2, 5, 2)
    assert wide["A"].shape == (2, 5, 5)
    assert not wide.mask[:, 3:].any()
    for name in state.components:
        assert torch.equal(wide.pad(3)[name], state[name])
    with pytest.raises(InputError, match="uses slot 2"):
        state.pad(2)


def test_joining_pads_to_the_largest_and_picking_undoes_it():
    state = pair_state()
    joined = GraphState.cat([state.take(torch.tensor([1])).pad(2), state])
    assert (joined.batch, joined.nodes) == (3, 3)
    assert joined.mask.sum(1).tolist() == [2, 3, 2]
    for name in state.components:
        assert torch.equal(joined.take(slice(1, 3))[name], state[name])
        assert torch.equal(joined[name][0], state[name][1])
    with pytest.raises(InputError, match="different components"):
        GraphState.cat([state, GraphState.of(torch.ones(1, 2), X=torch.zeros(1, 2, 1))])
    with pytest.raises(InputError, match="empty list"):
        GraphState.cat([])


def test_moving_changes_type_and_keeps_the_mask():
    moved = pair_state().to("cpu", torch.float64)
    assert moved["A"].dtype == torch.float64
    assert moved.mask.dtype == torch.bool


def test_rows_of_trees():
    tree = {"a": torch.arange(4), "b": (None,), "s": pair_state()}
    keep = torch.tensor([True, False])
    assert take_rows(tree["a"], torch.tensor([2, 0])).tolist() == [2, 0]
    assert take_rows(tree["s"], keep).batch == 1
    joined = cat_rows([{"a": torch.zeros(1)}, {"a": torch.ones(2)}])
    assert joined["a"].tolist() == [0, 1, 1]
    mixed = where_rows(keep, {"y": torch.ones(2, 3)}, {"y": torch.zeros(2, 3)})
    assert mixed["y"].sum(1).tolist() == [3, 0]
    assert expand(torch.ones(2, dtype=torch.float64), torch.zeros(2, 3, 3)).shape == (2, 1, 1)


ONE = torch.ones(1, 2)
EDGE = torch.zeros(1, 2, 2)


@pytest.mark.parametrize(
    ("mask", "kinds", "components", "words"),
    [
        (torch.ones(2), None, {"A": EDGE}, "shape (B, N)"),
        (torch.ones(0, 2), None, {"A": EDGE}, "at least one graph"),
        (torch.ones(1, 0), None, {"A": EDGE}, "at least one graph and node"),
        (ONE * 0.5, None, {"A": EDGE}, "only 0 and 1"),
        (torch.tensor([[1, 1], [0, 0]]), None, {"y": torch.zeros(2, 1)}, "graph 1 of the batch has no nodes"),
        (ONE, None, {}, "at least one component"),
        (ONE, {"A": "bond"}, {"A": EDGE}, "must be one of"),
        (ONE, None, {"A": EDGE.long()}, "floating point"),
        (ONE, None, {"B": EDGE}, "could be nodes or edges; say which: kinds={'B': 'edge'} or 'node'"),
        (ONE, None, {"A": torch.zeros(1, 3, 3)}, "does not match the mask"),
        (ONE, None, {"X": torch.zeros(2, 2, 1)}, "does not match the mask"),
        (ONE, None, {"y": torch.zeros(3, 1)}, "does not match the mask"),
        (torch.tensor([[1, 0]]), None, {"X": torch.ones(1, 2, 1)}, "not zero on padded nodes"),
        (ONE, None, {"A": torch.eye(2)[None]}, "diagonal"),
        (ONE, None, {"A": torch.tensor([[[0.0, 1.0], [2.0, 0.0]]])}, "not symmetric"),
        (ONE, None, {"A": torch.full((1, 2, 2), torch.nan)}, "not finite"),
    ],
)
def test_wrong_states_are_refused_in_one_line(mask, kinds, components, words):
    with pytest.raises(InputError) as caught:
        GraphState.of(mask, kinds, **components)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
