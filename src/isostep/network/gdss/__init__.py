"""GDSS' score networks."""
