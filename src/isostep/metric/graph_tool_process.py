"""Block inference by graph-tool, run as a script by an interpreter that has it (graph-tool is not on PyPI).

Standard input: {"seed": s, "graphs": [{"n": n, "edges": [[i, j], ...]}, ...]}; standard output: a list of labels per
graph. Degree-corrected model of minimum description length, then 100 refinement rounds at zero temperature. Imports
nothing of this package, so that the other interpreter needs graph-tool alone.
"""

import json
import math
import sys

ROUNDS = 100


def main() -> None:
    from graph_tool import Graph, seed_rng
    from graph_tool.inference import minimize_blockmodel_dl

    request = json.load(sys.stdin)
    seed_rng(request["seed"])
    labels = []
    for record in request["graphs"]:
        graph = Graph(directed=False)
        graph.add_vertex(record["n"])
        graph.add_edge_list(record["edges"])
        state = minimize_blockmodel_dl(graph)
        for _ in range(ROUNDS):
            state.multiflip_mcmc_sweep(beta=math.inf, niter=10)
        labels.append([int(block) for block in state.get_blocks().a])
    json.dump(labels, sys.stdout)


if __name__ == "__main__":
    main()
