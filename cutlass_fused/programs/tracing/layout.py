"""Where the elements of a tensor lie in rows of N columns.

A layout has a number for each dimension: how many columns lie from one element to the next, or
ROWS; 0 where all have the same value, as in a dimension of 1 or one that was expanded. What is
constant over columns that no dimension tells apart is so in a program, too: there every value has
N columns.
"""

import itertools
import math
from collections.abc import Iterable, Sequence

ROWS = -1
Layout = tuple[int, ...]


def relayout(shape: Sequence[int], layout: Layout, new: Sequence[int]) -> Layout | None:
    """Of the same elements in another shape. None: they have no layout there."""
    waiting = [list(pair) for pair in zip(shape, layout, strict=True) if pair[0] != 1]
    found = []
    for size in reversed(new):
        taken, first = 1, 0  # elements, and the columns from one to the next
        while taken < size:
            count, step = waiting[-1]
            part = math.gcd(count, size // taken)
            if part == 1 or size % taken or (step == ROWS and (part != count or size != count)):
                return None
            if taken == 1:
                first = step
            elif first > 0 and step == first * taken:
                pass
            elif first == 0 and step in (0, taken):
                # Columns side by side that have one value: elements are one column apart.
                first = 1 if step else 0
            else:
                return None
            taken *= part
            if part == count:
                waiting.pop()
            else:
                waiting[-1] = [count // part, step * part]
        found.append(first)
    return tuple(reversed(found))


def join(parts: Iterable[tuple[Sequence[int], Layout]], shape: Sequence[int]) -> Layout | None:
    """Of what is computed of tensors that PyTorch broadcasts to a shape. None: elements of
    different places would meet."""
    steps: list[set[int]] = [set() for _ in shape]
    for sizes, layout in parts:
        pairs = zip(sizes, layout, strict=True)
        for place, (size, step) in enumerate(pairs, len(shape) - len(sizes)):
            if size != 1 and step != 0:
                steps[place].add(step)
    if any(len(each) > 1 for each in steps):
        return None
    found = tuple(each.pop() if each else 0 for each in steps)
    used = sorted((step, size) for step, size in zip(found, shape, strict=True) if step)
    for (step, size), (following, _) in itertools.pairwise(used):
        if following == step or (step > 0 and following < step * size):
            return None
    return found
