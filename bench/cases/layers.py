"""Softmax and batch norm alone: their cases, their inputs, and their truth in pieces."""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cutlass_fused import comparison, nn

from .cases import Case, Problem

# (M, N). Rows of 1001 and 50257 elements are not aligned to 16 bytes.
SHAPES = (
    (1000, 1001),
    (1024, 512),  # so little that the launch counts
    (16384, 512),
    (1024, 8192),  # as behind the products of the models
    (16384, 4096),
    (4096, 4096),
    (65536, 1024),  # many short rows
    (256, 131072),  # few wide rows
    (2048, 32000),  # vocabularies of language models
    (4096, 50257),
    (8192, 65536),
    (16384, 131072),  # 2^31 elements
)

Backward = Callable[[], Sequence[Tensor]]

# In a piece whose truth is computed at once: 256 MiB in float64.
MOST_ELEMENTS = 2**25


class Layer(NamedTuple):
    mode: str
    # How often the layer reads or writes an element of memory for one of x, by what is counted.
    passes: int
    backward_passes: int
    # n -> the plain layer in float32 on the default device
    build_plain: Callable[[int], torch.nn.Module]
    # (plain, precision) -> ours, sharing parameters and buffers; the precision is not used
    fuse: Callable[[torch.nn.Module, str | None], torch.nn.Module]
    # The dimension along which the pieces of x have results of their own.
    independent: int


LAYERS = {
    "softmax": Layer(
        mode="eval",
        passes=2,
        backward_passes=3,  # y and its gradient are read, that of x is written
        build_plain=lambda n: torch.nn.Softmax(dim=1),
        fuse=lambda plain, precision: nn.Softmax.from_eager(plain),
        independent=0,
    ),
    "batch_norm": Layer(
        mode="train",
        passes=3,
        backward_passes=5,  # x and the gradient of y are read twice
        build_plain=torch.nn.BatchNorm1d,
        fuse=lambda plain, precision: nn.BatchNorm1d.from_eager(plain),
        independent=1,
    ),
}


class BackwardCase(Case):
    """The backward pass of a layer."""

    __slots__ = ()

    def describe(self, suite: str) -> dict:
        return {**super().describe(suite), "grad": True}

    def __str__(self) -> str:
        return f"{super().__str__()}, backward"


def is_backward(problem: Problem) -> bool:
    return isinstance(problem.case, BackwardCase)


def build_layer_problem(case: Case, device: str) -> Problem:
    """Normal inputs, whose columns have a mean and a scale of their own for batch norm."""
    layer, dtype = LAYERS[case.model], comparison.PRECISIONS[case.precision].dtype
    with comparison.keep_seed(device), torch.device(device):
        torch.manual_seed(0)
        plain = layer.build_plain(case.n).to(dtype)
        # In place: the largest takes 8 GiB.
        x = torch.randn(case.m, case.n, dtype=dtype)
        if case.model == "batch_norm":
            x.mul_(torch.rand(case.n, dtype=dtype) + 0.5).add_(torch.randn(case.n, dtype=dtype))
    return Problem(case, layer, plain.train(layer.mode == "train"), x)


def count_bytes(problem: Problem) -> int:
    layer = problem.model
    passes = layer.backward_passes if is_backward(problem) else layer.passes
    return passes * problem.x.numel() * problem.x.element_size()


def draw_gradient(problem: Problem) -> Tensor:
    """That of the result."""
    with comparison.keep_seed(problem.x.device.type):
        torch.manual_seed(1)
        return torch.randn_like(problem.x)


def build_backward(problem: Problem, run: Callable[[], Tensor], grad: Tensor) -> Backward:
    """The backward pass of a call that is made here, once; it gives the gradients of x and of the
    parameters."""
    asked = problem.x, *problem.plain.parameters()
    with torch.enable_grad():
        # Of a result that is not needed itself only the way back is kept: the largest take 8 GiB.
        y = torch.autograd.graph.get_gradient_edge(run())
    return lambda: torch.autograd.grad(y, asked, grad, retain_graph=True)


def cut_truth(problem: Problem) -> Iterator[tuple[slice, comparison.Truth]]:
    """The truth of one piece after the other, and where along `independent` it lies."""
    x, layer = problem.x, problem.model
    other = x.shape[1 - layer.independent]
    step = max(1, MOST_ELEMENTS // other)
    for start in range(0, x.shape[layer.independent], step):
        piece = slice(start, min(start + step, x.shape[layer.independent]))
        if layer.independent == 0:
            yield piece, comparison.compute_truth(problem.plain, x[piece])
        else:
            columns = layer.build_plain(piece.stop - piece.start).to(x.device, x.dtype)
            columns.train(problem.plain.training)
            yield piece, comparison.compute_truth(columns, x[:, piece])


def measure_layer_errors(problem: Problem, run: Callable[[], Tensor]) -> dict[str, float]:
    """The relative L2 error of one call's result, under "y", and of the buffers that it leaves."""
    y = run()
    sums: dict[str, Tensor] = {}
    for piece, truth in cut_truth(problem):
        found = {"y": y[piece] if problem.model.independent == 0 else y[:, piece]}
        expected = {"y": truth.y}
        for key, buffer in problem.plain.named_buffers():
            found[key] = buffer[piece] if buffer.dim() else buffer
            expected[key] = truth.buffers[key]
        for key, value in found.items():
            difference = value.double() - expected[key]
            pair = torch.stack([difference.square().sum(), expected[key].double().square().sum()])
            sums[key] = sums.get(key, 0) + pair
    return {key: (pair[0] / pair[1]).sqrt().item() for key, pair in sums.items()}


def measure_backward_errors(problem: Problem, run: Backward, grad: Tensor) -> dict[str, float]:
    """The relative L2 errors of the gradients of x, under "x", and of the parameters."""
    found = dict(zip(("x", *dict(problem.plain.named_parameters())), run(), strict=True))
    layer, sums = problem.model, {}
    other = problem.x.shape[1 - layer.independent]
    step = max(1, MOST_ELEMENTS // other)
    for start in range(0, problem.x.shape[layer.independent], step):
        piece = slice(start, start + step)
        for key, expected in _differentiate_piece(problem, grad, piece).items():
            whole = key == "x" and layer.independent == 1
            value = found[key][:, piece] if whole else found[key][piece]
            difference = value.double() - expected
            pair = torch.stack([difference.square().sum(), expected.square().sum()])
            sums[key] = sums.get(key, 0) + pair
    return {key: (pair[0] / pair[1]).sqrt().item() for key, pair in sums.items()}


def _differentiate_piece(problem: Problem, grad: Tensor, piece: slice) -> dict[str, Tensor]:
    """The gradients of a piece in float64; parameters lie along the columns."""
    x = problem.x.detach()
    if problem.model.independent == 0:
        plain, x, grad = copy.deepcopy(problem.plain).double(), x[piece], grad[piece]
    else:
        x, grad = x[:, piece], grad[:, piece]
        plain = problem.model.build_plain(x.shape[1]).to(x.device, torch.float64).train()
    x = x.double().requires_grad_()
    with torch.enable_grad():
        asked = {"x": x, **dict(plain.named_parameters())}
        found = torch.autograd.grad(plain(x), list(asked.values()), grad.double())
    return dict(zip(asked, found, strict=True))
