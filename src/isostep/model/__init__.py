"""Models: network + processes + decoder + card, and where they come from."""
