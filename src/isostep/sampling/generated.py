"""Generated items as other libraries want them: what a result in memory and a run read from its folder share."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import torch

from isostep.base.errors import InputError, require
from isostep.item import Graph, Item, Molecule

if TYPE_CHECKING:
    import networkx
    import pandas
    from matplotlib.figure import Figure
    from rdkit.Chem import Mol

SHOWN = 12  # pictures in a notebook


class Generated:
    """`items` in index order, all of one kind."""

    items: list[Any]

    @property
    def item(self) -> type[Item]:
        raise NotImplementedError

    @property
    def name(self) -> str:
        """Of the model."""
        raise NotImplementedError

    def records(self) -> list[dict[str, Any]]:
        """One row per item."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.items)

    @property
    def graphs(self) -> list[Graph]:
        """Generic graphs (for molecules: `molecules`)."""
        return self._of(Graph)

    @property
    def molecules(self) -> list[Molecule]:
        return self._of(Molecule)

    @property
    def smiles(self) -> list[str]:
        return [molecule.smiles for molecule in self.molecules]

    def _of(self, kind: type[Item]) -> list[Any]:
        made = self.item.kind
        if not issubclass(self.item, kind):
            raise InputError(f"{self.name} makes {made}s: use .items, .{made}s or .to_networkx()")
        return self.items

    def to_networkx(self) -> list[networkx.Graph]:
        return [item.to_networkx() for item in self.items]

    def to_rdkit(self) -> list[Mol | None]:
        """RDKit molecules of the corrected SMILES; None where nothing was left."""
        return [item.to_rdkit() for item in self.items]

    def to_pyg(self) -> list[Any]:
        """torch_geometric `Data`: `x`, `edge_index` (both directions), `edge_attr`, `num_nodes`. Of molecules, `x` is
        the atomic number and the charge, `edge_attr` the order of the bond (1.5: aromatic), and there is `smiles`; of
        other graphs both are one."""
        data = require("torch_geometric.data", "pyg", "to_pyg()")
        out = []
        for item in self.items:
            graph = item.to_networkx()
            pairs = torch.tensor(list(graph.edges), dtype=torch.int64).view(-1, 2)
            both = torch.cat([pairs, pairs.flip(1)]).T.contiguous()
            nodes = [node for _, node in graph.nodes(data=True)]
            x = [[node["number"], node["charge"]] if "number" in node else [1] for node in nodes]
            orders = [edge.get("order", 1.0) for _, _, edge in graph.edges(data=True)]
            out.append(
                data.Data(
                    x=torch.tensor(x or [[]], dtype=torch.float32).view(len(x), -1 if x else 0),
                    edge_index=both,
                    edge_attr=torch.tensor(orders * 2, dtype=torch.float32).view(-1, 1),
                    num_nodes=graph.number_of_nodes(),
                    **item.labels(),
                )
            )
        return out

    def to_pandas(self) -> pandas.DataFrame:
        """One row per item: index, what is known of its making, and nodes and edges or SMILES and validity."""
        return require("pandas", "pandas", "to_pandas()").DataFrame(self.records())

    def plot(self, count: int = SHOWN, columns: int = 4) -> Figure:
        """The first items as a matplotlib figure."""
        from matplotlib.figure import Figure

        from isostep.item.picture import layout

        shown = self.items[:count]
        rows = max(1, -(-len(shown) // columns))
        figure = Figure(figsize=(2.2 * columns, 2.2 * rows), layout="constrained")
        for k, item in enumerate(shown):
            axis, graph = figure.add_subplot(rows, columns, k + 1), item.to_networkx()
            axis.set_axis_off()
            if not graph:
                continue
            spots = layout(graph)
            for i, j, edge in graph.edges(data=True):
                axis.plot(*spots[[i, j]].T, color="#555555", lw=0.6 + 0.8 * (edge.get("order", 1) - 1), zorder=1)
            elements = [node.get("element") for _, node in graph.nodes(data=True)]
            axis.scatter(*spots.T, s=90 if elements[0] else 16, color="white" if elements[0] else "#0072B2", zorder=2)
            for spot, element in zip(spots, elements, strict=True):
                if element:
                    axis.text(spot[0], spot[1], element, ha="center", va="center", fontsize=8, zorder=3)
        return figure

    def _repr_html_(self) -> str:
        """In a notebook: the first pictures."""
        tiles = "".join(
            f'<figure style="display:inline-block;width:140px;margin:4px">{p.svg}<figcaption>{escape(p.caption)}'
            "</figcaption></figure>"
            for p in (item.picture() for item in self.items[:SHOWN])
        )
        return f"<p>{escape(repr(self))}</p><div>{tiles}</div>"
