"""What is recorded of a call of linear_epilogue that PyTorch differentiates."""

from typing import NamedTuple

from .operands import TILE
from .program import MOST_OUTPUTS, Acc, Operand
from .tracing.gradient import NOTHING, Gradient


class Recorded(NamedTuple):
    """What a call with gradients runs, in strings and numbers, which TorchDynamo takes for
    constants.

    text: the function's program, with acc behind its outputs where the gradient reads it.
    out: the dtypes of those by name.
    results: how many outputs are the function's own.
    gradient: the text of the gradient's program.
    reads: its operands, as indices into acc, the operands of the function, and the gradients of
        all results.
    places: of acc and each operand, which of its outputs is the gradient; -1 is none.
    gradient_out: the dtypes of its outputs by name.
    first: the result whose gradient is acc of the gradient's program; -1: acc is.
    constants: the results that have no gradient.
    is_first_order: the gradient's program has no derivative of its own; acc and all operands are
        kept for the function's.
    request: what traced.find_recorded was asked for.
    asynchronous: whether kernels are linked on another thread.
    """

    text: str
    out: str
    results: int
    gradient: str
    reads: tuple[int, ...]
    places: tuple[int, ...]
    gradient_out: str
    first: int
    constants: tuple[int, ...]
    is_first_order: bool
    request: tuple
    asynchronous: bool = False


def record(
    text: str,
    gradient: Gradient,
    needed: tuple[bool, ...],
    kinds: tuple[str, ...],
    out: str,
    wide: str,
    inputs: tuple[str, ...],
    request: tuple,
) -> Recorded | None:
    """needed: whether the gradients of acc and of each operand are asked for. kinds: of the
    operands. out: the dtype of all results by name; wide: that of acc; inputs: those that the
    gradients of acc and of the operands get. None: there would be too many outputs."""
    head, _, outputs = text.rpartition("\nreturn ")
    results = len(outputs.split())
    dtypes = [out] * results
    if Acc() in gradient.operands or gradient.is_first_order:
        text = f"{head}\nreturn {outputs.rstrip()} acc\n"
        dtypes.append(wide)
    if len(dtypes) > MOST_OUTPUTS:
        return None
    found = iter(gradient.outputs)
    places = [next(found) if each else None for each in needed]
    return Recorded(
        text,
        ",".join(dtypes),
        results,
        gradient.program.text,
        tuple(_find_index(each, len(kinds)) for each in gradient.operands),
        tuple(NOTHING if place is None else place for place in places),
        ",".join(_choose_dtypes(places, (TILE, *kinds), inputs, wide)),
        gradient.first,
        gradient.constants,
        gradient.is_first_order,
        request,
    )


def _choose_dtypes(places, kinds, inputs, wide: str) -> list[str]:
    """Of each output of a gradient's program. Terms of a sum are not rounded, unless something else
    has the same gradient; and what several have is as wide as the widest of them."""
    wanted: dict[int, list[tuple[str, str]]] = {}
    for place, kind, dtype in zip(places, kinds, inputs, strict=True):
        if place is not None:
            wanted.setdefault(place, []).append((kind, dtype))
    chosen = []
    for place in sorted(wanted):
        of_kinds = {kind for kind, _ in wanted[place]}
        dtypes = {dtype for _, dtype in wanted[place]}
        chosen.append(dtypes.pop() if TILE in of_kinds and len(dtypes) == 1 else wide)
    return chosen


def _find_index(argument, operands: int) -> int:
    if isinstance(argument, Acc):
        return 0
    return 1 + argument.index if isinstance(argument, Operand) else 1 + operands + argument
