"""Softmax and batch norm alone: their cases, their inputs, and their truth in pieces."""

from collections.abc import Callable, Iterator
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

# In a piece whose truth is computed at once: 256 MiB in float64.
MOST_ELEMENTS = 2**25


class Layer(NamedTuple):
    mode: str
    # How often the layer reads or writes an element of memory for one of x, by what is counted.
    passes: int
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
        build_plain=lambda n: torch.nn.Softmax(dim=1),
        fuse=lambda plain, precision: nn.Softmax.from_eager(plain),
        independent=0,
    ),
    "batch_norm": Layer(
        mode="train",
        passes=3,
        build_plain=torch.nn.BatchNorm1d,
        fuse=lambda plain, precision: nn.BatchNorm1d.from_eager(plain),
        independent=1,
    ),
}


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
    return problem.model.passes * problem.x.numel() * problem.x.element_size()


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
