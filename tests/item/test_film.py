"""A film holds what the sketches said, to a level; a sketch of a state shows chances, the strongest first."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from isostep.item.decoding import MOST_FAINT, GraphDecoder, MoleculeDecoder
from isostep.item.encoding import MoleculeSpec
from isostep.item.film import TOP, Film, Sketch
from isostep.state import GraphState

NODES = 5
PAIRS = [(i, j) for i in range(NODES) for j in range(i + 1, NODES)]


@st.composite
def sketches(draw, molecule: bool):
    most = 3 if molecule else 1
    kept = draw(st.lists(st.sampled_from(PAIRS), unique=True))
    weights = draw(st.lists(st.floats(0.1, most), min_size=len(kept), max_size=len(kept)))
    cuts = (0.5, 1.5, 2.5)[:most]
    edges = [(i, j, sum(w >= cut for cut in cuts)) for (i, j), w in zip(kept, weights, strict=True)]
    atoms = draw(st.lists(st.sampled_from("CNO"), min_size=NODES, max_size=NODES)) if molecule else None
    chances = draw(st.lists(st.floats(0, 1), min_size=NODES, max_size=NODES)) if molecule else None
    return Sketch(n=NODES, edges=tuple(edges), atoms=atoms, weights=tuple(weights), chances=chances)


@given(st.booleans().flatmap(lambda molecule: st.lists(sketches(molecule), min_size=1, max_size=4)))
def test_a_film_holds_its_sketches_to_a_level(frames):
    film = Film.model_validate(Film.of(frames).model_dump(mode="json"))
    for k, sketch in enumerate(frames):
        back = film.sketch(k)
        want = {edge[:2]: w for edge, w in zip(sketch.edges, sketch.weights, strict=True)}
        got = {edge[:2]: w for edge, w in zip(back.edges, back.weights, strict=True)}
        assert got.keys() == want.keys()
        assert all(abs(got[pair] - want[pair]) <= film.most / TOP / 2 + 1e-9 for pair in want)
        assert back.atoms == sketch.atoms
        if sketch.chances is not None:
            assert back.chances == pytest.approx(sketch.chances, abs=0.5 / TOP + 1e-9)


def test_a_sketch_keeps_every_decided_edge_and_the_strongest_others():
    n = 60
    a = torch.rand((1, n, n), generator=torch.Generator().manual_seed(0)).double()
    off = 1 - torch.eye(n)
    a = (a + a.transpose(1, 2)) / 2 * off
    sketch = GraphDecoder().sketch(GraphState.of(torch.ones(1, n), A=a), 0)
    assert {(i, j) for i, j, _ in sketch.decided} == {(int(i), int(j)) for i, j in (a[0].triu(1) >= 0.5).nonzero()}
    faint = 0.2 * off[None]
    faint[0, 3, 4] = faint[0, 4, 3] = 0.4
    few = GraphDecoder().sketch(GraphState.of(torch.ones(1, n), A=faint), 0)
    assert len(few.edges) == MOST_FAINT
    assert (3, 4, 0) in few.edges


def test_a_failed_graph_has_a_sketch():
    spec = MoleculeSpec(("C", "N"), max_nodes=3, scale=3.0)
    blank = GraphState.of(torch.ones(1, 3), X=torch.zeros(1, 3, 2), A=torch.zeros(1, 3, 3))
    state = blank.replace({name: x + float("nan") for name, x in blank.components.items()})
    sketch = MoleculeDecoder(spec).sketch(state, 0)
    assert sketch.chances == (0.0, 0.0, 0.0)
    assert Film.of([sketch]).pairs == ()
