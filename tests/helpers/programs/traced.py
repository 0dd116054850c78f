"""Tensors for the cases of program_cases, and their programs."""

import torch
from program_cases import COLUMN, ROW, SCALAR, Case

from cutlass_fused.programs.traced import TracedFunction

SHAPE = (23, 17)
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 3.0, -3.0, 20.0, -20.0, 100.0, -100.0)
SPECIAL += (1e30, -1e30, 1e-40, float("inf"), float("-inf"), float("nan"))


def find_key(case: Case):
    """Of the kinds of its operands, each of as many dimensions as make_tensors gives it."""
    dimensions = {ROW: 1, SCALAR: 0}
    return tuple((name, (kind, dimensions.get(kind, 2))) for name, kind in case.operands.items())


def find_program(name: str, case: Case):
    return TracedFunction(name, case.function).find(find_key(case)).program


def find_gradient(name: str, case: Case, needed=None):
    """Of acc and all operands, or of those that are needed."""
    needed = (True,) * (1 + len(case.operands)) if needed is None else needed
    return TracedFunction(name, case.function).find_gradient(find_key(case), needed)


def make_tensors(case: Case, dtype=torch.float64, shape=SHAPE, acc=None):
    """acc and the operands: those of rows, which divide and multiply, positive."""
    generator = torch.Generator().manual_seed(5)
    m, n = shape
    shapes = {ROW: (n,), COLUMN: (m, 1), SCALAR: ()}
    if acc is None:
        acc = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    operands = []
    for kind in case.operands.values():
        operand = torch.randn(shapes.get(kind, shape), generator=generator, dtype=torch.float64)
        operands.append(operand.abs() + 0.3 if kind in (COLUMN, SCALAR) else operand)
    return [each.to(dtype) for each in (acc, *operands)]


def call(case: Case, tensors):
    """The function itself; always a list."""
    outputs = case.function(tensors[0], **dict(zip(case.operands, tensors[1:], strict=True)))
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


def make_special(case: Case, dtype=torch.float32):
    """acc with every special value in every column."""
    column = torch.tensor(SPECIAL, dtype=torch.float64)
    return make_tensors(case, dtype, (len(SPECIAL), 5), column[:, None].expand(-1, 5))


class Clipped(torch.autograd.Function):
    """Its gradient is not linear."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad.clamp(-1, 1)


def make_inputs(case, inputs, rows, columns):
    """In memory, of these dtypes and kinds: rows of a tile are farther apart than they are long, by
    a whole number of pieces."""
    made = []
    tensors = make_tensors(case, torch.float32, (rows, columns))
    for tensor, (dtype, kind) in zip(tensors, inputs, strict=True):
        if kind == "tile":
            wider = torch.full((rows, columns + 16), float("nan"), dtype=dtype)
            wider[:, :columns] = tensor
            made.append(wider[:, :columns])
        else:
            made.append(tensor.to(dtype))
    return made


def make_leaves(case, shape, dtype):
    """x, weight and the operands, on the GPU. Sums are of the size of their elements, so that exp
    has a range."""
    m, n, k = shape
    torch.manual_seed(8)
    x, weight = torch.randn(m, k) / k**0.25, torch.randn(n, k) / k**0.25
    operands = make_tensors(case, torch.float32, (m, n))[1:]
    return [each.to("cuda", dtype).requires_grad_() for each in (x, weight, *operands)]
