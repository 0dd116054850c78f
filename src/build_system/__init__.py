"""Builds the libraries of cutlass_fused: finds the tools, writes a build.ninja, runs ninja.

One file an idea. `library.build()` is the whole road; setup.py calls it.
"""
