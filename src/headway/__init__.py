"""Headway: trains diffusion transformers on GPU clusters and accounts for every millisecond of every step."""

__version__ = "0.1.0"
