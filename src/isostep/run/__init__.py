"""Run folders: sampled by workers, resumable, one format."""
