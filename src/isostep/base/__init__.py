"""What everything else stands on: errors, files, cache, progress."""
