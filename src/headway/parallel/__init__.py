"""Layouts: a mesh of ranks and how a network and its gradients are spread over it.

Import from the module that defines a thing: `from headway.parallel.mesh import build_mesh`.
"""
