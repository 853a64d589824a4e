"""What things are: runs, meshes, hardware, operation graphs, events, breakdowns, findings, errors.

Standard library only. Import from the module that defines a thing: `from headway.spec.run import RunSpec`.
"""
