"""Studies: arms compared on common random numbers; computed once, stored as JSON, then tables and plots."""
