"""Builds the libraries of cutlass_fused: finds the tools, writes a build.ninja, runs ninja.

One file an idea. `library.build()` is the whole road; setup.py calls it.
"""

from typing import NoReturn


def fail(problem: str, remedy: str) -> NoReturn:
    """How the build ends when something is missing: one sentence with the remedy, no traceback."""
    raise SystemExit(f"cutlass_fused: {problem}; {remedy}.")
