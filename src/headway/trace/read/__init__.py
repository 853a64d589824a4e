"""Readers: one module a file format, each gives what it reads as a `Table`; `file` knows which one a path needs."""
