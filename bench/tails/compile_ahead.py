"""What processes beside the one that measures compile ahead: they import it by its name."""

import functools
from collections.abc import Sequence

from ..end_to_end.compile_ahead import compile_problem
from .cases import TailCase, build_problem


def group_tails(case: TailCase) -> tuple:
    """Cases of one group follow each other."""
    return case.which, case.m, case.precision


def compile_tail(device: str, names: Sequence[str], case: TailCase) -> None:
    compile_problem(device, names, functools.partial(build_problem, case), case.which == "step")
