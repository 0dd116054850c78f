"""Kernels that start while the one before them ends: each result depends on the one before it."""

import pytest
import torch

from cutlass_fused import epilogue

pytestmark = pytest.mark.gpu

ops = torch.ops.cutlass_fused
STEPS = 24
# Blocks that a GPU has at once, and some that it has one after the other.
SHAPES = ((64, 512), (4096, 4096))
NEXT = "program 1\noperands 1\nv0 = mul acc 0x1.8p+0\nv1 = sub v0 p0\nreturn v1\n"


@epilogue
def normalized(acc, skipped):
    return torch.nn.functional.layer_norm(acc + skipped, acc.shape[1:])


def apply_programs(x):
    """Elements, and sums over the rows that the next call reads."""
    for _ in range(STEPS):
        (total,) = ops.apply_program(x, [], "program 1\noperands 0\nreturn acc\n", "sum:float32")
        (x,) = ops.apply_program(x, [total / 1024], NEXT, "float32")
    return x


def run_products(x):
    """A product, and a kernel of rows behind it, in turns."""
    weight = torch.full((x.shape[1], x.shape[1]), 1 / 1024, device="cuda", dtype=x.dtype)
    weight.fill_diagonal_(1)
    for _ in range(STEPS):
        x = normalized(x, weight, skipped=x)
    return x


def run_waiting(run, x, monkeypatch):
    """With every kernel alone on the GPU."""

    def wait(call):
        def waiting(*args, **options):
            torch.cuda.synchronize()
            result = call(*args, **options)
            torch.cuda.synchronize()
            return result

        return waiting

    with monkeypatch.context() as patched:
        patched.setattr(ops, "apply_program", wait(ops.apply_program))
        patched.setitem(globals(), "normalized", wait(normalized))
        return run(x)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "run, dtype",
    [
        (apply_programs, torch.float32),
        (run_products, torch.float32),
        (run_products, torch.bfloat16),
    ],
)
def test_each_reads_what_the_one_before_it_wrote(run, dtype, shape, monkeypatch):
    x = torch.randn(shape, device="cuda", dtype=dtype)
    expected = run_waiting(run, x, monkeypatch)
    for _ in range(3):
        assert torch.equal(run(x), expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run(x)
    for _ in range(3):
        captured.zero_()
        graph.replay()
        assert torch.equal(captured, expected)
