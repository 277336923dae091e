"""What is generated: graphs, molecules, molecules in space. Nothing outside asks which of them it has."""

from isostep.item.base import KINDS, Decoder, Item, KindName, kind_named, read_items, write_items
from isostep.item.conformer import Conformer
from isostep.item.graph import Graph
from isostep.item.molecule import Molecule

__all__ = [
    "KINDS",
    "Conformer",
    "Decoder",
    "Graph",
    "Item",
    "KindName",
    "Molecule",
    "kind_named",
    "read_items",
    "write_items",
]
