"""Microbenchmarks: both sides in one process tree, a ratio with its interval."""
