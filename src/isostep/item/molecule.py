"""A generated molecule. Its line is `SMILES<TAB>index<TAB>valid`."""

# RDKit's stubs leave types open and know no None.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnnecessaryComparison=false
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from isostep.base.errors import InputError
from isostep.base.limits import within
from isostep.item.base import Item, Picture, Rejected

if TYPE_CHECKING:
    from typing import Self

    import networkx
    from rdkit.Chem import Mol


@dataclass(frozen=True)
class Molecule(Item):
    """Canonical SMILES after correction ("" if nothing is left).

    `valid`: there is an atom, and RDKit's property check passed before any correction.
    """

    kind = "molecule"
    file = "molecules.smi"
    wide = True
    space = "Conformers by RDKit (ETKDG, MMFF)"

    smiles: str
    valid: bool

    def to_line(self, index: int) -> str:
        return f"{self.smiles}\t{index}\t{int(self.valid)}"

    @classmethod
    def from_line(cls, line: str, index: int | None = None) -> Molecule:
        fields = line.split("\t")
        if len(fields) != 3 or fields[2] not in ("0", "1") or (index is not None and fields[1] != str(index)):
            wanted = "index" if index is None else index
            raise InputError(f"expected SMILES<TAB>{wanted}<TAB>valid with valid 0 or 1, got {line.strip()[:60]!r}")
        return cls(fields[0], fields[2] == "1")

    @classmethod
    def accepts(cls, value: Any) -> bool:
        return isinstance(value, str)

    @classmethod
    def given(cls, value: str) -> Self:
        """From SMILES; what RDKit rejects is an invalid molecule."""
        smiles = canonical(value)
        if smiles is None:
            raise Rejected(f"RDKit rejects {value[:60]!r}: {_fault(value)}" if value else "no SMILES", cls("", False))
        return cls(smiles, True)

    def usable(self) -> Self:
        """With canonical SMILES. Correction can leave nothing (an empty one)."""
        smiles = canonical(self.smiles)
        if self.smiles and smiles is None:
            raise InputError(f"RDKit rejects the corrected molecule {self.smiles[:60]!r}: {_fault(self.smiles)}")
        return replace(self, smiles=smiles or "")

    def fields(self) -> dict[str, Any]:
        return {"smiles": self.smiles, "valid": self.valid}

    @staticmethod
    def columns(arrow: Any) -> list[tuple[str, Any]]:
        return [("smiles", arrow.string()), ("valid", arrow.bool_())]

    def row(self) -> dict[str, Any]:
        return self.fields()

    def labels(self) -> dict[str, Any]:
        return {"smiles": self.smiles}

    def to_rdkit(self) -> Mol | None:
        """None where correction left nothing."""
        from rdkit import Chem

        return Chem.MolFromSmiles(self.smiles) if self.smiles else None

    def to_networkx(self) -> networkx.Graph[Any]:
        """Nodes have an `element`, its `number` and a `charge`, edges an `order`."""
        import networkx

        graph, mol = networkx.Graph(), self.to_rdkit()
        if mol is not None:
            graph.add_nodes_from(
                (a.GetIdx(), {"element": a.GetSymbol(), "number": a.GetAtomicNum(), "charge": a.GetFormalCharge()})
                for a in mol.GetAtoms()
            )
            graph.add_edges_from(
                (b.GetBeginAtomIdx(), b.GetEndAtomIdx(), {"order": b.GetBondTypeAsDouble()}) for b in mol.GetBonds()
            )
        return graph

    def to_sdf(self, index: int) -> str:
        """An SDF record; nothing where nothing is left."""
        from rdkit import Chem

        if (mol := self.to_rdkit()) is None:
            return ""
        mol.SetProp("_Name", str(index))
        return Chem.MolToMolBlock(mol) + "$$$$\n"

    texts: ClassVar = {"smi": lambda molecule, index: molecule.to_line(index) + "\n", "sdf": to_sdf}

    def picture(self) -> Picture:
        from isostep.item.picture import molecule_svg

        fault = "" if self.valid else "corrected" if self.smiles else "nothing left"
        return Picture(molecule_svg(self.smiles), self.smiles or "no atom", fault)

    def in_space(self) -> dict[str, Any] | None:
        from isostep.item.picture import molecule_3d

        return molecule_3d(self.smiles)

    @classmethod
    def tally(cls, items: Iterable[Molecule]) -> dict[str, int]:
        return {"valid": sum(molecule.valid for molecule in items)}


def canonical(text: str) -> str | None:
    """Canonical SMILES, or None where RDKit rejects the text or it holds no atom."""
    from rdkit import Chem, rdBase

    within("smiles_characters", len(text), f"a SMILES of {len(text):,} characters")
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(text)
    return Chem.MolToSmiles(molecule) or None if molecule is not None else None


def _fault(text: str) -> str:
    """What RDKit has against a SMILES."""
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(text, sanitize=False)
        try:
            problems = [] if molecule is None else Chem.DetectChemistryProblems(molecule)
        except RuntimeError:  # of some atoms it does not know the valence, and ends there
            return "of an impossible valence"
    if molecule is None:
        return "not SMILES"
    return problems[0].Message().strip() if problems else "no atom"
