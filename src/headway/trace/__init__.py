"""Traces: read, classify, attribute. No torch; import from the module that defines a thing."""
