"""How the build ends when something is missing: one sentence with the remedy, no traceback."""

from typing import NoReturn


def fail(problem: str, remedy: str) -> NoReturn:
    raise SystemExit(f"cutlass_fused: {problem}; {remedy}.")
