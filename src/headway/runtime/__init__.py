"""Turns a run spec or a run folder into live objects: launch, build, load, checkpoint, optimize, sample, export, graph."""
