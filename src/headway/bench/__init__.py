"""Measurements of Headway itself; import from the module that defines a thing."""
