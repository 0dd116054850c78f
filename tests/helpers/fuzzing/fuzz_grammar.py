"""Functions of the elements of a product, written at random: texts of Python.

Values stay within some tens of what they are made of and no function is steep, so that an error of
the product is not magnified: what is left is the error of the kernel. Where a function jumps, a
rounding decides which side a number is on: only operands, which are exact, come there.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

import torch
from torch.nn import functional as F

ROW, COLUMN, SCALAR, TILE = "row", "column", "scalar", "tile"
SMOOTH = (
    *("torch.sigmoid({a})", "torch.tanh({a})", "torch.sin({a})", "torch.cos({a})"),
    *("torch.erf({a})", "torch.atan({a})", "torch.asinh({a})", "torch.exp(-({a}) ** 2)"),
    *("F.silu({a})", "F.gelu({a})", "F.gelu({a}, approximate='tanh')", "F.mish({a})"),
    *("F.softplus({a})", "F.softplus({a}, 2.0, 10.0)", "F.logsigmoid({a})"),
    *("torch.rsqrt(1 + ({a}) ** 2)", "torch.log1p(({a}) ** 2)", "torch.sqrt(1 + ({a}) ** 2)"),
    *("({a}) * {number}", "({a}) + {number}", "{number} - ({a})", "-({a})", "({a}) / 3.0"),
)
SMOOTH_OF_TWO = (
    *("({a} + {b})", "({a} - {b})", "({a} * torch.tanh({b}))", "({a} * torch.sigmoid({b}))"),
    *("({a} / (1 + ({b}) ** 2))", "torch.logaddexp({a}, {b})"),
)
KINKED = (
    *("torch.relu({a})", "torch.abs({a})", "F.leaky_relu({a}, 0.2)", "F.leaky_relu({a}, -0.5)"),
    *("F.elu({a}, 0.7)", "F.hardtanh({a}, -2.0, 2.0)", "F.relu6({a})", "F.hardswish({a})"),
    *("F.hardsigmoid({a})", "F.softshrink({a})", "torch.clamp({a}, -1.5, 2.5)"),
    *("torch.clamp({a}, min=-0.25)", "torch.nan_to_num({a})"),
)
KINKED_OF_TWO = ("torch.maximum({a}, {b})", "torch.minimum({a}, {b})")
# p is an operand.
JUMPS = (
    *("torch.where({p} > 0, {a}, {b})", "torch.where(({p} < 0.5) & ({p} > -1), {a}, {b})"),
    *("({a} + torch.sign({p}))", "({a} + torch.floor({p}))", "({a} - torch.round({p}))"),
    "({a}).masked_fill({p} > 1, 0.5)",
)
ALONG_ROWS = (
    *("torch.softmax({a}, -1)", "F.log_softmax({a}, -1)", "F.layer_norm({a}, acc.shape[1:])"),
    *("({a} - ({a}).mean(-1, keepdim=True))", "torch.logsumexp({a}, -1, keepdim=True)"),
    "({a} * torch.rsqrt((({a}) ** 2).mean(-1, keepdim=True) + 0.01))",
    *("({a} - torch.logsumexp({a}, 1, keepdim=True))", "(({a}) ** 2).mean(-1)"),
)
# Those whose gradient jumps, too, where two elements are the largest.
ALONG_ROWS_KINKED = (
    *("({a}).amax(-1, keepdim=True)", "({a} - ({a}).amax(-1, keepdim=True))"),
    *("({a}).max(-1, keepdim=True).values", "({a} * ({a}).min(-1, keepdim=True).values)"),
)
NUMBERS = ("0.5", "-1.25", "2.0", "0.1", "1.702", "3.0")


@dataclasses.dataclass(frozen=True)
class Written:
    """text: that of a function; operands: name -> kind."""

    text: str
    operands: dict[str, str]
    is_of_rows: bool
    function: Callable

    def __str__(self) -> str:
        return f"{self.text.splitlines()[-1].strip()} of {self.operands}"


class _Writer:
    def __init__(self, rng: random.Random, is_smooth: bool) -> None:
        self.rng, self.is_smooth = rng, is_smooth
        self.operands: dict[str, str] = {}

    def write_operand(self) -> str:
        if self.operands and (len(self.operands) == 4 or self.rng.random() < 0.4):
            return self.rng.choice(list(self.operands))
        name = f"p{len(self.operands)}"
        self.operands[name] = self.rng.choice((ROW, ROW, COLUMN, SCALAR, TILE))
        return name

    def write(self, depth: int, has_acc: bool) -> str:
        """An expression; with has_acc of acc, too."""
        if depth == 0:
            return "acc" if has_acc or self.rng.random() < 0.3 else self.write_operand()
        kind, of_two = self.rng.random(), self.rng.random() < 0.45
        if kind < 0.15:
            form = self.rng.choice(JUMPS)
        elif kind < 0.5 and not self.is_smooth:
            form = self.rng.choice(KINKED_OF_TWO if of_two else KINKED)
        else:
            form = self.rng.choice(SMOOTH_OF_TWO if of_two else SMOOTH)
        parts = {"number": self.rng.choice(NUMBERS)}
        if "{p}" in form:
            parts["p"] = self.write_operand()
        parts["a"] = self.write(depth - 1, has_acc)
        if "{b}" in form:
            parts["b"] = self.write(self.rng.randrange(depth), False)
        return form.format(**parts)


def write_function(rng: random.Random, is_smooth: bool = False, may_add_rows=True) -> Written:
    """is_smooth: its gradient has no jumps, and each of its results is (M, N)."""
    writer = _Writer(rng, is_smooth)
    results = []
    is_of_rows = may_add_rows and rng.random() < 0.3
    for i in range(rng.choice((1, 1, 1, 2, 3))):
        text = writer.write(rng.randint(1, 4), True)
        if is_of_rows and i == 0:
            forms = ALONG_ROWS[:4] if is_smooth else ALONG_ROWS + ALONG_ROWS_KINKED
            # What it is of stands in it more than once.
            text = rng.choice(forms).format(a=text)
        results.append(text)
    names = ", ".join(["acc", *writer.operands])
    source = f"def function({names}):\n    return {', '.join(results)}\n"
    scope = {"torch": torch, "F": F}
    exec(compile(source, "<fuzzed>", "exec"), scope)
    return Written(source, dict(writer.operands), is_of_rows, scope["function"])
