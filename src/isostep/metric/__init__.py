"""Metrics of generated graphs and molecules. `evaluate` measures a set, `reference` stores what it is compared with."""
