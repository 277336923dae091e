"""Train a small model, stop it, go on, sample it: python examples/tutorials/train.py

The same as `isostep train my.toml --out runs/mine`. A run that was stopped and continued has the same weights as
one that was not.
"""

import subprocess
import sys
from pathlib import Path

import isostep

CONFIG = """
name = "mine"
family = "grum"
data = {{ name = "communities", features = "eigenvectors" }}
loss = {{ eps = 2e-3, edges = 5.0 }}
optimizer = {{ lr = 1e-3, warmup_steps = 20 }}
run = {{ steps = {steps}, batch = 16, validate_every = 50, validation_graphs = 32, checkpoint_every = 50 }}

[process]
X = {{ type = "bridge", sigma_0 = 0.2, sigma_1 = 0.1, drift_coeff = 1.0, weight = "const" }}
A = {{ type = "bridge", sigma_0 = 0.4, sigma_1 = 0.2, drift_coeff = 1.0, cap = 20.0 }}

[grum]
layers = 2
dx = 32
de = 16
dy = 16
heads = 4
ff_x = 32
ff_e = 16
ff_y = 16
mlp_x = 32
mlp_e = 16
mlp_y = 16
dropout = 0.0
"""


def main(steps: int = 200, out: str = "runs/mine") -> None:
    config = Path("my.toml")
    for upto in (steps // 2, steps):  # more steps may be asked for later
        config.write_text(CONFIG.format(steps=upto))
        subprocess.run([sys.executable, "-m", "isostep", "train", str(config), "--out", out], check=True)
    result = isostep.sample(f"{out}/model", 8, calls=20)
    print(result)
    print(Path(out, "log.csv").read_text().splitlines()[-1])


if __name__ == "__main__":
    main()
