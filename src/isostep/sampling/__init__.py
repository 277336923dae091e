"""Sampling in memory: batches through the loop, decoded."""
