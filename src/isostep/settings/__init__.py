"""Sampler settings."""
