"""What every kind of item promises: one codec for its line, plain data that fits its columns, a picture."""

from __future__ import annotations

import json

import pytest

from isostep.base.errors import InputError
from isostep.item import KINDS, Conformer, Graph, Item, Molecule, read_items, write_items

EXAMPLES: list[Item] = [
    Graph.of(4, [(0, 1), (1, 2)]),
    Graph.of(1, []),
    Molecule("CCO", True),
    Molecule("", False),
    Molecule("C[N+](C)(C)C", False),
    Conformer("CO", True, ("C", "O"), (0, 0), ((0, 1, 1),), ((-0.7, 0.0, 0.0), (0.7, 0.0, 0.0))),
]


def test_every_kind_of_ours_has_an_example():
    ours = {kind for kind in KINDS.values() if kind.__module__.startswith("isostep.")}
    assert {type(item) for item in EXAMPLES} == ours


@pytest.mark.parametrize("item", EXAMPLES, ids=lambda item: item.to_line(7))
def test_a_line_gives_the_item_back(item):
    line = item.to_line(7)
    assert "\n" not in line
    again = type(item).from_line(line, 7)
    assert again.fields() == item.fields()
    assert again.to_line(7) == line
    json.dumps(item.fields(), allow_nan=False)
    json.dumps(item.row(), allow_nan=False)


@pytest.mark.parametrize("item", EXAMPLES, ids=lambda item: item.to_line(7))
def test_columns_hold_the_fields(item):
    arrow = pytest.importorskip("pyarrow")
    schema = arrow.schema(item.columns(arrow))
    assert arrow.Table.from_pylist([item.fields()], schema).to_pylist() == [item.fields()]


@pytest.mark.parametrize("line", ["", "CCO", "CCO\t0", "CCO\t0\t2", "CCO\t0\t1\t1", "CCO 0 1"])
def test_a_bad_line_of_a_molecule_is_refused(line):
    with pytest.raises(InputError, match="expected SMILES"):
        Molecule.from_line(line)


def test_a_molecule_line_is_checked_against_its_index():
    assert Molecule.from_line("C\t3\t1") == Molecule.from_line("C\t3\t1", 3) == Molecule("C", True)
    with pytest.raises(InputError, match="<TAB>4<TAB>"):
        Molecule.from_line("C\t3\t1", 4)


def test_tallies_are_what_a_summary_states():
    molecules = [item for item in EXAMPLES if isinstance(item, Molecule)]
    assert Molecule.tally(molecules) == {"valid": 2}
    assert Graph.tally([Graph.of(1, [])]) == {}


def test_pictures_and_space():
    graph, dot, ethanol, nothing, *_ = EXAMPLES
    for item in (graph, dot, ethanol, nothing):
        picture = item.picture()
        assert picture.svg.startswith("<svg")
        assert picture.caption
    assert nothing.in_space() is graph.in_space() is None
    assert [item.picture().fault for item in (graph, ethanol, nothing)] == ["", "", "nothing left"]
    space = ethanol.in_space()
    assert space is not None
    assert len(space["atoms"]) == len(space["xyz"]) == 9


def test_a_graph_has_no_rdkit_form():
    with pytest.raises(InputError, match="no RDKit form"):
        EXAMPLES[0].to_rdkit()


def test_files_are_written_whole(tmp_path):
    class Broken(Graph):
        def to_line(self, index: int = 0) -> str:
            raise RuntimeError("no")

    write_items(tmp_path / "graphs.jsonl", EXAMPLES[:2])
    good = (tmp_path / "graphs.jsonl").read_text()
    assert [(i, item.to_line(i)) for i, item in read_items(tmp_path, "graph")] == list(enumerate(good.splitlines()))
    with pytest.raises(RuntimeError):
        write_items(tmp_path / "graphs.jsonl", [EXAMPLES[0], Broken(1, EXAMPLES[1].edges)])  # type: ignore[attr-defined]
    assert (tmp_path / "graphs.jsonl").read_text() == good
