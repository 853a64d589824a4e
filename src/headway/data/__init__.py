"""Data sets, the global order of their samples, and the loader that decodes ahead."""
