"""The first graphs of a run as films: what the model takes each for, at FRAMES equal times.

At time t a film shows the clean graph that the model predicts from the graph's state at its last step before t, so it
holds the chances of edges and elements. The predictions are calls beside the run; they touch neither its graphs nor its
count of calls. A drift of one's own predicts nothing; the state itself is shown then.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from isostep.item.film import Film
from isostep.loop import StepInfo
from isostep.model.model import Model
from isostep.process.sde import as_sde
from isostep.sampling.run import SampleResult
from isostep.state import GraphState

FRAMES = 40  # after the first, which is noise
FILMED = 4  # graphs


class Camera:
    """A hook of the loop: the latest state of graphs 0 .. FILMED - 1 before each frame."""

    def __init__(self) -> None:
        self.seen: dict[tuple[int, int], tuple[float, GraphState]] = {}  # graph, frame -> time, state

    def __call__(self, info: StepInfo) -> None:
        for row in torch.nonzero(info.running & (info.index < FILMED)).flatten().tolist():
            t = float(info.t1[row])
            frame = math.ceil(t * FRAMES - 1e-9)  # the first that comes at t or later
            if frame < FRAMES:
                self.seen[int(info.index[row]), frame] = t, info.state.take(slice(row, row + 1))

    def films(self, result: SampleResult) -> list[Film]:
        """The last frame is the output itself."""
        count, sketch = min(FILMED, len(result)), result.model.decoder.sketch
        prior = result.model.prior(torch.arange(count), result.seed)
        films = []
        for graph in range(count):
            shots = {0: (0.0, prior.take(slice(graph, graph + 1)))}
            shots |= {frame: shot for (name, frame), shot in sorted(self.seen.items()) if name == graph}
            times = torch.tensor([t for t, _ in shots.values()], dtype=torch.float64)
            clean = predicted(result.model, GraphState.cat([state for _, state in shots.values()]), times)
            drawn = {frame: sketch(clean, k) for k, frame in enumerate(shots)}
            held = [drawn[max(frame for frame in drawn if frame <= k)] for k in range(FRAMES)]
            films.append(Film.of([*held, sketch(result.tensors, graph)]))
        return films


def predicted(model: Model, states: GraphState, t: Tensor) -> GraphState:
    """The clean graphs that the model predicts from states at t (B,)."""
    sde = as_sde(model)
    if not sde.processes:
        return states
    t = t.to(states.device)
    with torch.no_grad():
        estimate = sde.evaluate(states, t).estimate
    assert estimate is not None
    return states.replace({n: sde.processes[n].clean(x, estimate[n], t) for n, x in states.components.items()})
