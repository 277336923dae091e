"""GruM with positions."""
