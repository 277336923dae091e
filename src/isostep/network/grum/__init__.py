"""GruM's graph transformer."""
