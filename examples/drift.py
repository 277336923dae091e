"""A drift of your own, as a function with its noise. Without noise it is an ODE, as in flow matching."""

import torch

import isostep


def rewire(state, t):
    """Nodes drift towards their neighbours; edges tighten between similar nodes."""
    x, a = state["X"], state["A"]
    likeness = torch.tanh(x @ x.mT)
    return {"X": a @ x / 10 - x, "A": (likeness - a) / (1.05 - t)[:, None, None]}


def noise(t):
    return {"X": 0.5, "A": 1.0 - 0.8 * t}


model = isostep.wrap(rewire, diffusion=noise, nodes=[5, 6, 8], features=3, name="rewire")
for chosen in ({"schedule": "uniform", "steps": 50}, {"schedule": "dvs", "calls": 50, "clock": "graph"}):
    print(isostep.sample(model, 8, **chosen).solution.steps.tolist())
flow = isostep.wrap(rewire, diffusion=0.0, nodes=6, features=3, name="flow")
print(isostep.sample(flow, 8, solver="heun", schedule="arclength", calls=40))
