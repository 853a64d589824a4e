"""The training loop: step, loop, hooks. Import from the module that defines a thing."""
