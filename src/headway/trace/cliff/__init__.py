"""Cliffs: where the steps of a run became slower, and why."""
